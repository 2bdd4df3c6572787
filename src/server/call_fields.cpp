// SPDX-License-Identifier: Apache-2.0
#include "server/call_fields.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "server/prompt_list.h"

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

}  // namespace

StreamOptions read_stream_options(FieldReader& fields) {
  StreamOptions options;
  options.stream = fields.boolean("stream").value_or(false);
  if (const Json* object = fields.object("stream_options")) {
    FieldReader inner(*object, "stream_options.");
    options.include_usage = inner.boolean("include_usage").value_or(false);
    options.continuous_usage = inner.boolean("continuous_usage_stats").value_or(false);
    if (inner.error()) fields.fail(*inner.error());
  }
  return options;
}

std::string read_model_name(FieldReader& fields, const CallContext& context) {
  std::string name = fields.string("model").value_or("");
  const auto& served = context.served_names;
  if (name.empty() || name == "default") return served.front();
  if (!context.allow_any_model_name &&
      std::find(served.begin(), served.end(), name) == served.end()) {
    fields.fail({.status = 404,
                 .code = "model_not_found",
                 .message = fmt::format("The model `{}` does not exist.", name),
                 .param = "model"});
  }
  return name;
}

bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
  });
}

void read_request_id(FieldReader& fields, const CallContext& context, PreparedCall& call) {
  call.id = context.id;
  const auto id = fields.string("rid");
  if (!id) return;
  if (!is_request_id(*id)) {
    fields.fail(invalid_value(
        "rid", "`rid` must be 1 to 128 characters out of letters, digits, '.', '_', ':' and '-'."));
    return;
  }
  call.id = *id;
  call.id_is_callers = true;
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
                                          std::string_view param) {
  int64_t total = 0;
  int64_t largest = 0;
  for (const Request& request : requests) {
    const int64_t num_logprobs = request.return_logprobs ? 1 + request.top_logprobs : 0;
    const int64_t size = request.stop.max_new_tokens * (bytes.token + num_logprobs * bytes.logprob);
    total += size;
    largest = std::max(largest, size);
  }
  const int64_t size = cumulative ? largest : total;
  const int64_t limit = cumulative ? kMaxEventBytes : kMaxAnswerBytes;
  if (size <= limit) return std::nullopt;
  return invalid_value(
      param,
      fmt::format("{} could grow to about {} MiB of JSON ({} of up to {} tokens{}); at most {} MiB "
                  "are allowed. Ask for fewer tokens, answers or logprobs{}.",
                  cumulative ? "An event of the stream" : "The answer", size >> 20,
                  requests.size() == 1 ? "one text" : fmt::format("{} texts", requests.size()),
                  requests[0].stop.max_new_tokens,
                  requests[0].return_logprobs
                      ? fmt::format(", each with {} logprobs", 1 + requests[0].top_logprobs)
                      : "",
                  limit >> 20, cumulative ? ", or do without `stream`" : ", or for a `stream`"));
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
  refuse_fields(fields, {"lora_path", "session_params", "return_hidden_states", "bootstrap_host",
                         "bootstrap_port", "bootstrap_room", "max_thinking_tokens", "background",
                         "input_embeds"});
}

void check_response_format(FieldReader& fields) {
  const Json* format = fields.object("response_format");
  if (format == nullptr) return;
  FieldReader inner(*format, "response_format.");
  const std::string type = inner.string("type").value_or("");
  if (inner.error()) {
    fields.fail(*inner.error());
  } else if (type.empty()) {
    fields.fail(missing_parameter("response_format.type"));
  } else if (type != "text") {
    fields.fail(unsupported_parameter("response_format",
                                      "it has no constrained output; only "
                                      "{\"type\": \"text\"} is served"));
  }
}

}  // namespace heddle::server
