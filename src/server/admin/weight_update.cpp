// SPDX-License-Identifier: Apache-2.0
#include "server/admin/weight_update.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/call/body_fields.h"
#include "server/call/field_reader.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMaxPathBytes = 4096;  // longest path in Linux

HttpResponse answer(const Result<WeightsUpdated>& result, const std::string& model_path,
                    const HttpRequest& request) {
  if (result.ok()) {
    return json_response({{"success", true},
                          {"message", fmt::format("The weights are those of {}.", model_path)},
                          {"num_paused_requests", result->num_paused_requests}});
  }
  const Status& status = result.status();
  if (status.code() == StatusCode::kUnavailable) {
    return error_response(error_from_status(status, request.id), request);
  }
  return {.status = 400,
          .headers = {},
          .body = dump_json(
              Json{{"success", false}, {"message", status.message()}, {"num_paused_requests", 0}})};
}

}  // namespace

std::variant<WeightUpdateOrder, ApiError> read_weight_update(std::string_view body) {
  Json object;
  if (const auto error = parse_json_object(body, object)) return *error;
  FieldReader fields(object);
  const std::string model_path = fields.string(Body::kUpdateWeights["model_path"]).value_or("");
  WeightUpdateOrder order{
      .update = {.model_dir = model_path,
                 .abort_all_requests = fields.flag(Body::kUpdateWeights["abort_all_requests"]),
                 .flush_cache = fields.flag(Body::kUpdateWeights["flush_cache"]),
                 .pause_after = fields.flag(Body::kUpdateWeights["keep_pause"])},
      .weight_version = fields.string(Body::kUpdateWeights["weight_version"])};
  // These fields are checked but have no effect, because they describe what always happens: weights
  // are read while requests run, and captured graphs find the new weights at the addresses of the
  // old ones.
  (void)fields.boolean(Body::kUpdateWeights["is_async"]);
  (void)fields.boolean(Body::kUpdateWeights["recapture_cuda_graph"]);
  if (const auto name = fields.string(Body::kUpdateWeights["load_format"])) {
    const Result<LoadFormat> format = parse_load_format(*name);
    if (!format.ok()) fields.fail(invalid_value("load_format", format.status().message()));
    order.update.load_format = format.ok() ? *format : LoadFormat::kAuto;
  }
  if (model_path.empty()) fields.fail(missing_parameter("model_path"));
  const auto is_control = [](unsigned char byte) { return byte < 0x20 || byte == 0x7f; };
  if (model_path.size() > kMaxPathBytes || std::ranges::any_of(model_path, is_control)) {
    fields.fail(invalid_value(
        "model_path", fmt::format("`model_path` has {} bytes; it must be the path of a "
                                  "folder, of at most {} bytes, without control characters.",
                                  model_path.size(), kMaxPathBytes)));
  }
  if (order.weight_version) {
    if (auto error = check_weight_version("weight_version", *order.weight_version)) {
      fields.fail(*error);
    }
  }
  if (fields.error()) return *fields.error();
  return order;
}

void update_weights(Engine& engine, const Post& post, WeightVersion& version,
                    std::shared_ptr<Exchange> exchange) {
  auto read = read_weight_update(exchange->request().body);
  if (const auto* const error = std::get_if<ApiError>(&read)) {
    exchange->respond(error_response(*error, exchange->request()));
    return;
  }
  auto& order = std::get<WeightUpdateOrder>(read);
  WeightVersion::Origin origin{.model_path = order.update.model_dir.string(),
                               .load_format = order.update.load_format};
  engine.update_weights(
      std::move(order.update),
      [post, &version, exchange = std::move(exchange), origin = std::move(origin),
       name = std::move(order.weight_version)](const Result<WeightsUpdated>& result) mutable {
        if (result.ok()) version.update(result->num_weight_updates, std::move(name), origin);
        post([exchange = std::move(exchange), model_path = std::move(origin.model_path), result] {
          exchange->respond(answer(result, model_path, exchange->request()));
        });
      });
}

}  // namespace heddle::server
