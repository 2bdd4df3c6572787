// SPDX-License-Identifier: Apache-2.0
#include "server/http/api_error.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/log.h"
#include "request/refusal.h"
#include "server/http/json_text.h"

namespace heddle::server {
namespace {

using Json = nlohmann::ordered_json;

struct ErrorTypes {
  const char* nested;  // error code in OpenAI's form
  const char* flat;    // error type in SGLang's flat form
};

ErrorTypes types_of(int status) {
  switch (status) {
    case 401:
      return {"authentication_error", "Unauthorized"};
    case 403:
      return {"permission_error", "Forbidden"};
    case 404:
      return {"not_found_error", "NotFoundError"};
    case 429:
      return {"rate_limit_error", "TooManyRequests"};
    case 500:
      return {"server_error", "InternalServerError"};
    case 501:
      return {"server_error", "NotImplementedError"};
    case 503:
      return {"overloaded_error", "ServiceUnavailable"};
    default:
      return {"invalid_request_error", "BadRequestError"};
  }
}

// A limit, found by the word and colon with which its message begins.
struct Limit {
  std::string_view code;
  int status;
};

constexpr Limit kLimits[] = {{"displaced", 503},         {"queue_timeout", 503},
                             {"running_timeout", 503},   {"deadline_exceeded", 503},
                             {"tenant_queue_full", 429}, {"queue_full", 503},
                             {"control_queue_full", 503}};

// Retry-After in seconds if the engine's rate is not known (retry_after_seconds()).
constexpr int kRetrySeconds = 4;

// The status that Anthropic's clients know as an overloaded server.
constexpr int kAnthropicOverloaded = 529;

ApiError overloaded(std::string_view message, std::string_view default_code) {
  for (const Limit& limit : kLimits) {
    if (!message.starts_with(limit.code)) continue;
    const std::string_view rest = message.substr(limit.code.size());
    if (!rest.starts_with(": ")) continue;
    return {.status = limit.status,
            .code = std::string(limit.code),
            .message = std::string(rest.substr(2)),
            .retry_after_seconds = kRetrySeconds};
  }
  return {.status = 503,
          .code = std::string(default_code),
          .message = std::string(message),
          .retry_after_seconds = kRetrySeconds};
}

// The code of an internal failure, found by phrases of the samplers and the C++ library in its
// message.
const char* failure_code(std::string_view message) {
  if (message.find("numerical error") != std::string_view::npos) return "numerical_error";
  if (message.find("bad_alloc") != std::string_view::npos) return "out_of_memory";
  return "internal_error";
}

Json null_if_empty(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }

Json nested(const ApiError& error) {
  return {{"message", error.message},
          {"type", types_of(error.status).nested},
          {"param", null_if_empty(error.param)},
          {"code", null_if_empty(error.code)}};
}

// Messages that Anthropic's clients recognise: they then request less output, or shorten the
// conversation.
std::string anthropic_overflow(const ContextOverflow& overflow) {
  if (overflow.input_fits) {
    return fmt::format(
        "input length and `max_tokens` exceed context limit: {} + {} > {}, decrease input length "
        "or `max_tokens` and try again",
        overflow.input_tokens, overflow.output_tokens, overflow.context_length);
  }
  // An input as long as the context leaves no room for one token of output.
  return fmt::format("prompt is too long: {} tokens > {} maximum", overflow.input_tokens,
                     std::min(overflow.context_length, overflow.input_tokens - 1));
}

}  // namespace

ApiError missing_parameter(std::string_view param) {
  return {.code = "missing_required_parameter",
          .message = fmt::format("`{}` is required.", param),
          .param = std::string(param)};
}

ApiError invalid_type(std::string_view param, std::string_view wanted) {
  return {.code = "invalid_type",
          .message = fmt::format("`{}` must be {}.", param, wanted),
          .param = std::string(param)};
}

ApiError invalid_value(std::string_view param, std::string message) {
  return {.code = "invalid_value", .message = std::move(message), .param = std::string(param)};
}

ApiError unsupported_parameter(std::string_view param, std::string_view hint) {
  return {
      .code = "unsupported_parameter",
      .message = fmt::format("`{}` is not supported{}{}.", param, hint.empty() ? "" : ": ", hint),
      .param = std::string(param)};
}

ApiError stored_refused(const HttpRequest& head, std::string_view param) {
  return {
      .status = 403,
      .code = "cross_origin",
      .message = fmt::format("`{}` names what this server keeps. {}", param, head.stored_refusal),
      .param = std::string(param)};
}

ApiError context_overflow(const ContextOverflow& overflow, std::string_view max_tokens_name,
                          std::string_view input_param) {
  const auto& [input, output, length, input_fits] = overflow;
  // A requested output beyond any context is reported as sent, but cut so that the sum cannot
  // overflow.
  const int64_t shown = std::min(output, std::numeric_limits<int64_t>::max() - input);
  std::string message = fmt::format(
      "This model's maximum context length is {} tokens; the request needs {} ({} "
      "prompt + {} output). ",
      length, input + shown, input, shown);
  if (input_fits) {
    message +=
        fmt::format("Shorten the prompt, or lower `{}` to {}.", max_tokens_name, length - input);
  } else {
    message += "Shorten the prompt.";
  }
  return {.code = "context_length_exceeded",
          .message = std::move(message),
          .param = std::string(input_fits ? max_tokens_name : input_param),
          .overflow = overflow};
}

ApiError model_not_found(std::string_view name) {
  return {.status = 404,
          .code = "model_not_found",
          .message = fmt::format("The model `{}` does not exist.", name),
          .param = "model"};
}

ApiError loading_error() {
  return {.status = 503,
          .code = "loading",
          .message = "The model is still loading. Retry shortly.",
          .retry_after_seconds = 1};
}

ApiError shutting_down_error() {
  return {.status = 503,
          .code = "shutting_down",
          .message = "The server is shutting down and takes no new requests.",
          .retry_after_seconds = 5};
}

ApiError cut_off_error() {
  return {.status = 503,
          .code = "shutting_down",
          .message = "The server has shut down before this answer was complete.",
          .retry_after_seconds = 5};
}

ApiError error_from_status(const Status& status, std::string_view request_id) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument: {
      const request::Refusal refusal = request::refusal_of(status);
      return {.code = "invalid_value",
              .message = std::string(refusal.reason),
              .param = std::string(refusal.field)};
    }
    case StatusCode::kNotFound:
      return {.status = 404, .code = "not_found", .message = status.message()};
    case StatusCode::kResourceExhausted:
      return overloaded(status.message(), "queue_full");
    case StatusCode::kDeadlineExceeded:
      return overloaded(status.message(), "deadline_exceeded");
    case StatusCode::kUnimplemented:
      return {.status = 501, .code = "not_supported", .message = status.message()};
    case StatusCode::kUnavailable:
    case StatusCode::kCancelled:  // the client has disconnected, or the server stops
      return shutting_down_error();
    default:
      log_error(fmt::format("{}: {}", request_id, status.to_string()));
      return {.status = 500,
              .code = failure_code(status.message()),
              .message = fmt::format("The server failed on this request. Its log has the details "
                                     "under the id {}.",
                                     request_id)};
  }
}

std::string_view flat_error_type(int status) { return types_of(status).flat; }

std::string error_event(const ApiError& error) { return sse_event(Json{{"error", nested(error)}}); }

Json anthropic_error(const ApiError& error) {
  const char* type = "api_error";
  if (error.status >= 400 && error.status < 500) type = "invalid_request_error";
  if (error.status == 401) type = "authentication_error";
  if (error.status == 403) type = "permission_error";
  if (error.status == 404) type = "not_found_error";
  if (error.status == 413) type = "request_too_large";
  if (error.status == 429) type = "rate_limit_error";
  if (error.status == 503) type = "overloaded_error";
  return {{"type", type},
          {"message", error.overflow ? anthropic_overflow(*error.overflow) : error.message}};
}

HttpResponse error_response(const ApiError& error, const HttpRequest& request) {
  ApiError shown = error;
  if (error.code == "queue_full" || error.code == "queue_timeout") {
    shown.status = request.error_form.overload_status;
  }
  HttpResponse response{.status = shown.status, .headers = {}, .body = {}};
  const Json param = null_if_empty(shown.param);
  Json body = Json::object();
  switch (request.error_form.style) {
    case ErrorStyle::kOllama:
      body["error"] = shown.message;
      break;
    case ErrorStyle::kAnthropic:
      body = {{"type", "error"}, {"error", anthropic_error(shown)}, {"request_id", request.id}};
      if (shown.status == 503) response.status = kAnthropicOverloaded;
      break;
    case ErrorStyle::kOpenAi:
    case ErrorStyle::kBoth:
      body["error"] = nested(shown);
      if (request.error_form.style == ErrorStyle::kOpenAi) break;
      [[fallthrough]];
    case ErrorStyle::kFlat:
      body["object"] = "error";
      body["message"] = shown.message;
      body["type"] = types_of(shown.status).flat;
      body["param"] = param;
      body["code"] = shown.status;
      break;
  }
  response.body = dump_json(body);
  if (shown.retry_after_seconds > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(shown.retry_after_seconds));
  }
  if (shown.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  return response;
}

HttpResponse error_response(const ApiError& error) { return error_response(error, HttpRequest{}); }

}  // namespace heddle::server
