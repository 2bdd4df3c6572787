// SPDX-License-Identifier: Apache-2.0
// ApiError: the answer to a request that cannot be served. Its .cpp is the only place where Status
// codes become HTTP statuses. The body has the form that the client's API expects (ErrorStyle):
//
//   kOpenAi     {"error":{"message":"...","type":"invalid_request_error","param":"n","code":"..."}}
//   kFlat       {"object":"error","message":"...","type":"BadRequestError","param":"n","code":400}
//   kBoth       one object with the keys of both
//   kAnthropic  {"type":"error","error":{"type":"...","message":"..."},"request_id":"..."}
//   kOllama     {"error":"..."}
//
// Threading: plain values; thread-compatible.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "server/http/http_message.h"

namespace heddle::server {

// Sizes of a request that exceeds the model's context: the input alone does not fit, or it leaves
// no room for the requested output.
struct ContextOverflow {
  int64_t input_tokens = 0;  // tokens counted so far; the rest of a long input was not read
  int64_t output_tokens = 0;
  int64_t context_length = 0;
  bool input_fits = false;
};

struct ApiError {
  int status = 400;
  std::string code = {};        // error code, as "invalid_value"; empty: null in the body
  std::string message = {};     // one sentence with the field, its value and the remedy
  std::string param = {};       // name of the field at fault; empty: null in the body
  int retry_after_seconds = 0;  // value of the Retry-After header, s; 0: no such header
  // Set if the context is exceeded, for APIs with a message of their own for that.
  std::optional<ContextOverflow> overflow = {};
};

ApiError missing_parameter(std::string_view param);
ApiError invalid_type(std::string_view param, std::string_view wanted);
ApiError invalid_value(std::string_view param, std::string message);

// Error for a parameter that the server understands but does not support in this release.
ApiError unsupported_parameter(std::string_view param, std::string_view hint = {});

// Error for a request whose field `param` names stored data although the request may not use any
// (HttpRequest::stored_refusal).
ApiError stored_refused(const HttpRequest& head, std::string_view param);

// Error for a request that exceeds the context. `max_tokens_name`: the field that limits the
// output; `input_param`: the field with the input.
ApiError context_overflow(const ContextOverflow& overflow, std::string_view max_tokens_name,
                          std::string_view input_param);

ApiError model_not_found(std::string_view name);
ApiError loading_error();
ApiError shutting_down_error();
ApiError cut_off_error();  // a shutdown ended the request before its answer was complete

// Converts the engine's refusal of a request. Details of internal failures go to the log only.
// Where several limits share a code, the message begins with the limit's name and a colon:
// "queue_timeout: ...". `param` becomes the engine's name of the field at fault
// (request/refusal.h).
ApiError error_from_status(const Status& status, std::string_view request_id);

// The `type` of an error in the flat form, as "BadRequestError".
[[nodiscard]] std::string_view flat_error_type(int status);

// An error event for an OpenAI stream that has started, without the end marker.
[[nodiscard]] std::string error_event(const ApiError& error);

// {"type": .., "message": ..}, with the type names of Anthropic's API.
[[nodiscard]] nlohmann::ordered_json anthropic_error(const ApiError& error);

// The response with the error in the form that `request`'s client expects.
[[nodiscard]] HttpResponse error_response(const ApiError& error, const HttpRequest& request);

// The response when the bytes could not be parsed into a request: the error in OpenAI's and the
// flat form.
[[nodiscard]] HttpResponse error_response(const ApiError& error);

}  // namespace heddle::server
