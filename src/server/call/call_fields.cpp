// SPDX-License-Identifier: Apache-2.0
#include "server/call/call_fields.h"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/printable.h"
#include "server/call/body_fields.h"
#include "server/call/prompt_list.h"
#include "server/call/served_adapters.h"
#include "server/http/key_ring.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

bool asks_for_something(const Json& value) {
  if (value.is_null()) return false;
  if (value.is_boolean()) return value.get<bool>();
  if (value.is_string()) return !value.get_ref<const std::string&>().empty();
  if (value.is_structured()) return !value.empty();
  return true;
}

// The number of log probabilities that are shown for one token.
int64_t logprobs_of_token(const Request& request, int32_t num_top) {
  return 1 + num_top + std::ssize(request.logprob_tokens);
}

// Approximate bytes of JSON for the log probabilities of a request's prompt.
int64_t prompt_logprobs_bytes(const Request& request, const TokenJsonBytes& bytes) {
  if (!request.prompt_logprobs) return 0;
  const int64_t num_tokens = std::ssize(request.prompt) - request.prompt_logprobs->from;
  return num_tokens * logprobs_of_token(request, request.prompt_logprobs->top) * bytes.logprob;
}

constexpr size_t kMaxMetadataEntries = 16;  // limit of OpenAI's API for the entries of `metadata`
constexpr size_t kMaxMetadataKeyBytes = 64;
constexpr size_t kMaxMetadataValueBytes = 512;

// The header as a number; none if it is absent or wrong, in which case `fields` has the error.
template <typename Number>
std::optional<Number> header_number(FieldReader& fields, const CallContext& context,
                                    const char* name, std::string_view wanted) {
  const std::string_view text = context.head.header(name);
  if (text.empty()) return std::nullopt;
  Number number{};
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure == std::errc() && end == text.data() + text.size()) return number;
  fields.fail(invalid_value(name, fmt::format("The header `{}` is \"{}\"; it must be {}.", name,
                                              printable(text, 40), wanted)));
  return std::nullopt;
}

std::string read_key(FieldReader& fields, const Field& name) {
  std::string key = fields.string(name).value_or("");
  if (key.size() > kMaxKeyBytes) {
    fields.fail(invalid_value(fields.name_of(name),
                              fmt::format("`{}` has {} bytes; at most {} are allowed.",
                                          fields.name_of(name), key.size(), kMaxKeyBytes)));
  }
  return key;
}

double read_seconds(FieldReader& fields, const Field& milliseconds) {
  return fields.number(milliseconds).value_or(0) / 1e3;
}

double header_deadline(FieldReader& fields, const CallContext& context) {
  constexpr const char* kName = "x-request-timeout-ms";
  constexpr std::string_view kWanted = "a number of milliseconds above 0";
  const auto milliseconds = header_number<double>(fields, context, kName, kWanted);
  if (!milliseconds) return 0;
  if (!(*milliseconds > 0)) {
    fields.fail(invalid_value(kName, fmt::format("The header `{}` is {}; it must be {}.", kName,
                                                 *milliseconds, kWanted)));
    return 0;
  }
  return std::min(*milliseconds, Body::kMaxMilliseconds) / 1e3;
}

StreamOptions read_stream_options(FieldReader& fields, const CallContext& context) {
  StreamOptions options;
  options.stream = fields.flag(Body::kCall["stream"]);
  if (const Json* object = fields.object(Body::kCall["stream_options"])) {
    FieldReader inner(*object, "stream_options.");
    options.include_usage = inner.flag(Body::kStreamOptions["include_usage"]);
    options.continuous_usage = inner.flag(Body::kStreamOptions["continuous_usage_stats"]);
    if (inner.error()) fields.fail(*inner.error());
    context.note_unasked(inner);
  }
  return options;
}

}  // namespace

namespace {

// The part of a model's name that may name an adapter: what follows the longest served name and a
// colon, or else all of it; nothing of a served name.
std::string_view adapter_part(std::string_view name, const CallContext& context) {
  size_t size = 0;
  for (const std::string& served : context.served_names) {
    if (name == served) return {};
    if (name.starts_with(served) && name.substr(served.size()).starts_with(':')) {
      size = std::max(size, served.size() + 1);
    }
  }
  return name.substr(size);
}

// The adapter of this name that the sender may use; null if there is none.
std::shared_ptr<const Adapter> find_adapter(std::string_view name, const CallContext& context) {
  if (name.empty() || context.adapters == nullptr) return nullptr;
  return may_use_model(context.head.key.get(), name) ? context.adapters->find(name) : nullptr;
}

// Names that stand for the model itself; no adapter has one of them (check_adapter_name()).
bool names_the_model(std::string_view name) { return name == "default" || name == "latest"; }

bool has_adapters(const CallContext& context) {
  return context.adapters != nullptr && context.adapters->enabled();
}

// The adapter that `lora_path` names, or else `model`. With adapters a `model` that names neither
// the model nor an adapter is an error; the adapter may have been unloaded since read_model_name().
std::shared_ptr<const Adapter> read_adapter(FieldReader& fields, const CallContext& context) {
  const Json* const model = fields.find(Body::kModel["model"]);
  const std::string model_name =
      model != nullptr && model->is_string() ? model->get<std::string>() : "";
  const std::string_view part = adapter_part(model_name, context);
  std::shared_ptr<const Adapter> adapter = find_adapter(part, context);
  if (has_adapters(context) && adapter == nullptr && !part.empty() && !names_the_model(part)) {
    fields.fail(model_not_found(model_name));
  }
  const std::string path = fields.string(Body::kScheduling["lora_path"]).value_or("");
  if (path.empty()) return adapter;
  if (!has_adapters(context)) {
    fields.fail(unsupported_parameter(
        "lora_path",
        "The server takes adapters after a start with --enable-lora or --lora-paths."));
    return nullptr;
  }
  std::shared_ptr<const Adapter> named = find_adapter(path, context);
  if (named == nullptr) {
    ApiError error = model_not_found(path);
    error.param = "lora_path";
    fields.fail(std::move(error));
  } else if (adapter != nullptr && adapter != named) {
    fields.fail(invalid_value(
        "lora_path", fmt::format("`lora_path` is {} and `model` {}, two adapters; a request has "
                                 "one.",
                                 path, model_name)));
  }
  return named;
}

}  // namespace

std::string read_model_name(FieldReader& fields, const CallContext& context) {
  std::string name = fields.string(Body::kModel["model"]).value_or("");
  const std::string_view adapter = adapter_part(name, context);
  if (find_adapter(adapter, context) != nullptr) return name;
  // With adapters an unknown name may be that of an adapter that is not loaded.
  const bool may_be_anything =
      context.allow_any_model_name && (!has_adapters(context) || adapter == "latest");
  const auto& served = context.served_names;
  const auto may_use = [&context](const std::string& each) {
    return may_use_model(context.head.key.get(), each);
  };
  if (name.empty() || name == "default") {
    const auto own = std::ranges::find_if(served, may_use);
    name = own != served.end() ? *own : served.front();
  }
  const bool is_served = std::find(served.begin(), served.end(), name) != served.end();
  if ((!is_served && !may_be_anything) || !may_use(name)) {
    fields.fail(model_not_found(name));
  }
  return name;
}

void read_request_id(FieldReader& fields, const CallContext& context, PreparedCall& call) {
  call.id = context.id;
  const auto id = fields.string(Body::kCall["rid"]);
  if (!id) return;
  if (!is_request_id(*id)) {
    fields.fail(invalid_value(
        "rid", "`rid` must be 1 to 128 characters out of letters, digits, '.', '_', ':' and '-'."));
    return;
  }
  call.id = *id;
  call.id_is_callers = true;
}

OpenAiAnswerOptions read_openai_answer(FieldReader& fields, const CallContext& context,
                                       PreparedCall& call) {
  OpenAiAnswerOptions answer{.model = read_model_name(fields, context),
                             .created = context.created,
                             .weight_version = context.weight_version,
                             .codec = &context.codec};
  read_request_id(fields, context, call);
  call.no_logs = fields.flag(Body::kCall["no_logs"]);
  answer.id = call.id;
  answer.streaming = read_stream_options(fields, context);
  call.stream = answer.streaming.stream;
  answer.cache_details = fields.flag(Body::kCall["return_cached_tokens_details"]);
  answer.return_token_ids = fields.flag(Body::kCall["return_token_ids"]);
  return answer;
}

std::optional<ApiError> check_num_answers(const CallContext& context, size_t num_answers,
                                          std::string_view field) {
  if (num_answers > kMaxRequests) {
    return invalid_value(field, fmt::format("The call asks for {} answers; at most {} are allowed.",
                                            num_answers, kMaxRequests));
  }
  if (context.engine == nullptr) return std::nullopt;
  const Status status = context.engine->check_call_size(num_answers);
  if (status.ok()) return std::nullopt;
  ApiError error = error_from_status(status, context.id);
  error.param = field;
  return error;
}

std::optional<ApiError> check_answer_size(std::span<const Request> requests,
                                          const TokenJsonBytes& bytes, bool cumulative,
                                          std::string_view param, std::string_view prompt_param) {
  int64_t total = 0;
  int64_t largest = 0;
  int64_t prompts = 0;  // the part of these bytes for log probabilities of prompts
  for (const Request& request : requests) {
    const int64_t num_logprobs =
        request.return_logprobs ? logprobs_of_token(request, request.top_logprobs) : 0;
    const int64_t size =
        request.stop.max_new_tokens * (bytes.token + num_logprobs * bytes.logprob) +
        prompt_logprobs_bytes(request, bytes);
    total += size;
    largest = std::max(largest, size);
    const int64_t own = prompt_logprobs_bytes(request, bytes);
    prompts = cumulative ? std::max(prompts, own) : prompts + own;
  }
  const int64_t size = cumulative ? largest : total;
  const int64_t limit = cumulative ? kMaxEventBytes : kMaxAnswerBytes;
  if (size <= limit) return std::nullopt;
  if (prompts > limit) {
    return invalid_value(
        prompt_param,
        fmt::format("The logprobs of the prompts take about {} MiB of JSON; at most {} MiB are "
                    "allowed. Ask for those of fewer tokens, or with fewer alternatives.",
                    prompts >> 20, limit >> 20));
  }
  return invalid_value(
      param,
      fmt::format(
          "{} could grow to about {} MiB of JSON ({} of up to {} tokens{}{}); at most {} MiB "
          "are allowed. Ask for fewer tokens, answers or logprobs{}.",
          cumulative ? "An event of the stream" : "The answer", size >> 20,
          requests.size() == 1 ? "one text" : fmt::format("{} texts", requests.size()),
          requests[0].stop.max_new_tokens,
          requests[0].return_logprobs
              ? fmt::format(", each with {} logprobs",
                            logprobs_of_token(requests[0], requests[0].top_logprobs))
              : "",
          requests[0].prompt_logprobs ? ", beside the logprobs of the prompt" : "", limit >> 20,
          cumulative ? ", or do without `stream`" : ", or for a `stream`"));
}

std::optional<ApiError> check_prompt_logprobs_size(std::span<const Request> requests,
                                                   const TokenJsonBytes& bytes,
                                                   std::string_view param) {
  for (const Request& request : requests) {
    const int64_t size = prompt_logprobs_bytes(request, bytes);
    if (size <= kMaxEventBytes) continue;
    return invalid_value(
        param, fmt::format("The logprobs of the prompt take about {} MiB of JSON in one event of "
                           "the stream ({} tokens, each with {} logprobs); at most {} MiB are "
                           "allowed. Ask for those of fewer tokens, or do without `stream`.",
                           size >> 20, std::ssize(request.prompt) - request.prompt_logprobs->from,
                           logprobs_of_token(request, request.prompt_logprobs->top),
                           kMaxEventBytes >> 20));
  }
  return std::nullopt;
}

const Json* read_metadata(FieldReader& fields) {
  const Json* const metadata = fields.object(Body::kBatch["metadata"]);
  if (metadata == nullptr) return nullptr;
  if (metadata->size() > kMaxMetadataEntries) {
    fields.fail(invalid_value("metadata", fmt::format("`metadata` has {} entries; {} are allowed.",
                                                      metadata->size(), kMaxMetadataEntries)));
  }
  for (const auto& [key, value] : metadata->items()) {
    if (key.size() > kMaxMetadataKeyBytes || !value.is_string() ||
        value.get_ref<const std::string&>().size() > kMaxMetadataValueBytes) {
      fields.fail(invalid_value(
          "metadata", fmt::format("`metadata` has keys of up to {} bytes and strings of up to {}.",
                                  kMaxMetadataKeyBytes, kMaxMetadataValueBytes)));
      break;
    }
  }
  return metadata;
}

void refuse_fields(FieldReader& fields, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const Json* value = fields.find(name);
    if (value != nullptr && asks_for_something(*value)) {
      fields.fail(unsupported_parameter(fields.name_of(name)));
    }
  }
}

void refuse_unserved_features(FieldReader& fields) {
  refuse_fields(fields, {"return_hidden_states", "bootstrap_host", "bootstrap_port",
                         "bootstrap_room", "background", "input_embeds", "prompt_logprobs"});
}

void refuse_sessions(FieldReader& fields) {
  const Json* const params = fields.find(Body::kGenerate["session_params"]);
  if (params == nullptr || !asks_for_something(*params)) return;
  fields.fail({.code = "unsupported_parameter",
               .message = "`session_params` is not a field of this route; /generate has sessions.",
               .param = "session_params"});
}

void refuse_several_answers(FieldReader& fields) {
  const auto num_answers = fields.integer(std::string_view(Body::kChoices["n"]));
  if (!num_answers || *num_answers == 1) return;
  fields.fail(invalid_value("n", fmt::format("`n` is {}; this route gives one answer. "
                                             "/v1/chat/completions has `n`.",
                                             *num_answers)));
}

void SchedulingFields::apply(Request& request) const {
  request.priority = priority;
  request.tenant = tenant;
  request.routing_key = routing_key;
  request.ttft_slo_seconds = ttft_slo_seconds;
  request.deadline_seconds = deadline_seconds;
  request.cache_namespace = cache_namespace;
  request.adapter = adapter;
}

SchedulingFields read_scheduling_fields(FieldReader& fields, const CallContext& context) {
  SchedulingFields result;
  result.priority = fields.integer(Body::kScheduling["priority"]);
  if (!result.priority) {
    result.priority = header_number<int64_t>(fields, context, "x-priority", "an integer");
  }
  if (!result.priority && context.head.key != nullptr) result.priority = context.head.key->priority;
  const std::string user = read_key(fields, Body::kScheduling["user"]);
  result.tenant = tenant_of(context.fair_key, context.head, user).substr(0, kMaxKeyBytes);
  result.routing_key = read_key(fields, Body::kScheduling["routing_key"]);
  result.ttft_slo_seconds = read_seconds(fields, Body::kScheduling["ttft_slo_ms"]);
  result.deadline_seconds = read_seconds(fields, Body::kScheduling["deadline_ms"]);
  const double header = header_deadline(fields, context);
  if (header > 0) {
    result.deadline_seconds =
        result.deadline_seconds > 0 ? std::min(result.deadline_seconds, header) : header;
  }
  result.cache_namespace = cache_namespace(read_key(fields, Body::kScheduling["cache_salt"]),
                                           read_key(fields, Body::kScheduling["extra_key"]));
  if (context.isolate_tenants) {
    // The tenant comes first with its length, so that no tenant can construct another's namespace.
    result.cache_namespace =
        fmt::format("{}:{}/{}", result.tenant.size(), result.tenant, result.cache_namespace);
  }
  result.adapter = read_adapter(fields, context);
  return result;
}

std::string cache_namespace(std::string_view cache_salt, std::string_view extra_key) {
  if (cache_salt.empty() && extra_key.empty()) return {};
  return fmt::format("{}:{}{}", cache_salt.size(), cache_salt, extra_key);
}

}  // namespace heddle::server
