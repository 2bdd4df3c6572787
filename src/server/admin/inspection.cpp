// SPDX-License-Identifier: Apache-2.0
#include "server/admin/inspection.h"

#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/call/body_fields.h"
#include "server/call/call_fields.h"
#include "server/call/field_reader.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

// Limit for names of tenants and namespaces, which callers choose.
constexpr size_t kMaxNameBytes = 80;

std::string_view to_string(RequestPhase phase) {
  switch (phase) {
    case RequestPhase::kWaiting:
      return "waiting";
    case RequestPhase::kPrefill:
      return "prefill";
    case RequestPhase::kDecode:
      return "decode";
  }
  return "";
}

Json request_json(const RequestView& request) {
  return {{"rid", request.id},
          {"phase", to_string(request.phase)},
          {"priority", request.priority ? Json(*request.priority) : Json(nullptr)},
          {"tenant", printable(request.tenant, kMaxNameBytes)},
          {"prompt_tokens", request.prompt_tokens},
          {"computed_tokens", request.computed_tokens},
          {"cached_tokens", request.cached_tokens},
          {"output_tokens", request.output_tokens},
          {"max_new_tokens", request.max_new_tokens},
          {"num_returns", request.num_returns},
          {"age_seconds", request.age_seconds}};
}

Json pool_json(const PoolView& pool) {
  return {{"total", pool.total},
          {"requests", pool.requests},
          {"shared", pool.shared},
          {"cached", pool.cached},
          {"free", pool.total - pool.requests - pool.shared - pool.cached},
          {"bytes_each", pool.bytes_each},
          {"evicted", pool.evicted}};
}

Json node_json(const PrefixNodeView& node, const TextCodec& codec) {
  return {{"id", node.id},
          {"parent", node.parent},
          {"namespace", printable(node.name_space, kMaxNameBytes)},
          {"begin", node.begin},
          {"num_tokens", node.num_tokens},
          {"token_ids", node.tokens},
          {"text", codec.decode(node.tokens, /*skip_special_tokens=*/false)},
          {"num_children", node.num_children},
          {"has_state", node.has_state},
          {"num_uses", node.num_uses},
          {"locks", node.locks},
          {"state_locks", node.state_locks},
          {"idle_ticks", node.idle_ticks}};
}

Json reuse_json(const PromptReuse& reuse) {
  return {{"prompt_tokens", reuse.prompt_tokens},
          {"matched_tokens", reuse.matched_tokens},
          {"reused_tokens", reuse.reused_tokens},
          {"exact_repeat", reuse.exact_repeat},
          {"path", reuse.path}};
}

HttpResponse answer(const Result<Inspection>& seen, const TextCodec& codec,
                    const HttpRequest& request) {
  if (!seen.ok()) return error_response(error_from_status(seen.status(), request.id), request);
  try {
    return json_response(inspection_json(*seen, codec));
  } catch (const std::exception& failure) {  // mostly out of memory
    return error_response(error_from_status(internal_error(failure.what()), request.id), request);
  }
}

}  // namespace

std::variant<InspectionOptions, ApiError> read_inspection(const CallContext& context,
                                                          std::string_view body) {
  Json object = Json::object();
  if (!body.empty()) {
    if (auto error = parse_json_object(body, object)) return *error;
  }
  FieldReader fields(object);
  InspectionOptions options;
  options.max_requests = fields.integer_or_preset(Body::kInspect["max_requests"]);
  options.max_nodes = fields.integer_or_preset(Body::kInspect["max_nodes"]);
  options.max_node_tokens = fields.integer_or_preset(Body::kInspect["max_node_tokens"]);
  options.prompt = fields.token_ids(Body::kInspect["prompt_token_ids"], context.model.vocab_size)
                       .value_or(std::vector<TokenId>());
  options.cache_namespace = read_scheduling_fields(fields, context).cache_namespace;
  if (fields.error()) return *fields.error();
  return options;
}

Json inspection_json(const Inspection& seen, const TextCodec& codec) {
  Json requests = Json::array();
  for (const RequestView& request : seen.requests) requests.push_back(request_json(request));
  Json nodes = Json::array();
  for (const PrefixNodeView& node : seen.tree.nodes) nodes.push_back(node_json(node, codec));
  return {{"object", "inspection"},
          {"num_requests", seen.num_requests},
          {"requests", std::move(requests)},
          {"page_size", seen.page_size},
          {"pools",
           {{"kv_pages", pool_json(seen.kv_pages)},
            {"states", pool_json(seen.states)},
            {"window_pages", pool_json(seen.window_pages)}}},
          {"tree",
           {{"needs_state", seen.tree.needs_state},
            {"num_nodes", seen.tree.num_nodes},
            {"num_tokens", seen.tree.num_tokens},
            {"num_states", seen.tree.num_states},
            {"nodes", std::move(nodes)}}},
          {"reuse", seen.reuse ? reuse_json(*seen.reuse) : Json(nullptr)}};
}

void inspect(Engine& engine, const TextCodec& codec, const BodyThreads& threads,
             InspectionOptions options, std::shared_ptr<Exchange> exchange) {
  engine.inspect(std::move(options), [&codec, &threads, exchange = std::move(exchange)](
                                         Result<Inspection> result) mutable {
    // The result goes from the engine's thread to the I/O thread first, because only that may
    // submit work to the workers, which end before the engine does. The last reference to the
    // exchange must end on the I/O thread.
    auto seen = std::make_shared<Result<Inspection>>(std::move(result));
    threads.post([&codec, &threads, exchange = std::move(exchange), seen] {
      const auto work = [&codec, &threads, exchange, seen]() mutable {
        auto response = std::make_shared<HttpResponse>(answer(*seen, codec, exchange->request()));
        threads.post([exchange = std::move(exchange), response] {
          exchange->respond(std::move(*response));
        });
      };
      if (threads.run_on_worker(work)) return;
      exchange->respond(error_response({.status = 503,
                                        .code = "queue_full",
                                        .message = "The workers are busy. Retry later.",
                                        .retry_after_seconds = 4},
                                       exchange->request()));
    });
  });
}

}  // namespace heddle::server
