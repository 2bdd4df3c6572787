// SPDX-License-Identifier: Apache-2.0
// ApiError: the answer to a request that cannot be served, and the one place where Status
// codes become HTTP. The body has the form that the client's API wants (ErrorStyle):
//
//   kOpenAi     {"error":{"message":"...","type":"invalid_request_error","param":"n","code":"..."}}
//   kFlat       {"object":"error","message":"...","type":"BadRequestError","param":"n","code":400}
//   kBoth       one object with the keys of both
//   kAnthropic  {"type":"error","error":{"type":"...","message":"..."},"request_id":"..."}
//   kOllama     {"error":"..."}
//
// Threading: values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "server/http/http_message.h"

namespace heddle::server {

// A request that the model's context cannot hold: the input alone does not fit, or fits without
// the output that was asked for.
struct ContextOverflow {
  int64_t input_tokens = 0;  // counted so far, where the rest of a long input was not read
  int64_t output_tokens = 0;
  int64_t context_length = 0;
  bool input_fits = false;
};

struct ApiError {
  int status = 400;
  std::string code = {};                         // "invalid_value"; empty: null
  std::string message = {};                      // one sentence: the thing, the value, the remedy
  std::string param = {};                        // the field at fault; empty: null
  int retry_after_seconds = 0;                   // 0: no Retry-After header
  std::optional<ContextOverflow> overflow = {};  // for APIs that have words of their own for it
};

ApiError missing_parameter(std::string_view param);
ApiError invalid_type(std::string_view param, std::string_view wanted);
ApiError invalid_value(std::string_view param, std::string message);

// For what is understood but not served by this release.
ApiError unsupported_parameter(std::string_view param, std::string_view hint = {});

// For a request that names something stored, in `param`, and may use nothing that is
// (HttpRequest::stored_refusal).
ApiError stored_refused(const HttpRequest& head, std::string_view param);

// `max_tokens_name`: the field that asks for the output. `input_param`: that of the input.
ApiError context_overflow(const ContextOverflow& overflow, std::string_view max_tokens_name,
                          std::string_view input_param);

ApiError model_not_found(std::string_view name);
ApiError loading_error();
ApiError shutting_down_error();
ApiError cut_off_error();  // by a shutdown, before the answer was complete

// The engine's refusal of a request. Internal failures keep their details to the log. Where several
// limits share a code, the message begins with the limit's name and a colon: "queue_timeout: ...".
// `param` has the engine's name of the field at fault (request/refusal.h).
ApiError error_from_status(const Status& status, std::string_view request_id);

// The `type` of an error's flat form: "BadRequestError".
[[nodiscard]] std::string_view flat_error_type(int status);

// An event for a stream of OpenAI's that already started, without the end marker.
[[nodiscard]] std::string error_event(const ApiError& error);

// {"type": .., "message": ..} as Anthropic's API names the error's kind.
[[nodiscard]] nlohmann::ordered_json anthropic_error(const ApiError& error);

// In the form of the request that it answers.
[[nodiscard]] HttpResponse error_response(const ApiError& error, const HttpRequest& request);

// For bytes of which no request could be made: in both forms of OpenAI's routes.
[[nodiscard]] HttpResponse error_response(const ApiError& error);

}  // namespace heddle::server
