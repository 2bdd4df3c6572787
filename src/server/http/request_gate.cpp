// SPDX-License-Identifier: Apache-2.0
#include "server/http/request_gate.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/printable.h"
#include "server/http/caller.h"

namespace heddle::server {
namespace {

// Whether the client speaks Anthropic's API: its clients send the version of the API that they
// expect.
bool asks_as_anthropic(const HttpRequest& request) {
  return !request.header("anthropic-version").empty();
}

// The form of errors: that of the path's API; if several APIs or none have the path, that of the
// client.
ErrorStyle style_of(const HttpRequest& request, const Route* route, ErrorStyle otherwise) {
  if (request.path.starts_with("/v1/messages")) return ErrorStyle::kAnthropic;
  if (request.path.starts_with("/api/")) return ErrorStyle::kOllama;
  const bool is_shared =
      route == nullptr || route->endpoint == Endpoint::kNotServed || is_of_several_apis(*route);
  return is_shared && asks_as_anthropic(request) ? ErrorStyle::kAnthropic : otherwise;
}

bool is_file_route(const Route& route) {
  return route.endpoint == Endpoint::kFiles || route.endpoint == Endpoint::kOneFile;
}

// The media type in lower case, without parameters: "application/json" for " Application/JSON;
// charset=utf-8".
std::string media_type(std::string_view content_type) {
  const std::string type = lower_case(content_type.substr(0, content_type.find(';')));
  const size_t first = type.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return type.substr(first, type.find_last_not_of(" \t") - first + 1);
}

// Whether browsers let any web page send this content type to any server without a preflight
// request.
bool is_form_content(std::string_view type) {
  return type == "text/plain" || type == "application/x-www-form-urlencoded" ||
         type == "multipart/form-data";
}

}  // namespace

std::string_view request_id_prefix(std::string_view path) {
  if (path == "/v1/chat/completions") return "chatcmpl-";
  if (path == "/v1/completions") return "cmpl-";
  if (path == "/v1/messages") return "msg_";
  if (path == "/v1/responses") return "resp_";
  return "req-";
}

RequestGate::RequestGate(const GateOptions& options)
    : options_(options), page_guard_(options), keys_(options.api_key, options.admin_api_key) {
  keys_.replace_named(options.api_keys);
}

void RequestGate::identify(HttpRequest& request, HttpHeaders& common_headers) const {
  const std::string& root = options_.root_path;
  if (!root.empty() && request.path.starts_with(root) &&
      (request.path.size() == root.size() || request.path[root.size()] == '/')) {
    request.path.erase(0, root.size());
    if (request.path.empty()) request.path = "/";
  }
  request.path = known_path(std::move(request.path));
  const Route* const route = find_route(request.path);
  const std::string_view wanted_id = request.header("x-request-id");
  request.id = is_request_id(wanted_id) ? std::string(wanted_id)
                                        : new_request_id(request_id_prefix(request.path));
  request.error_form = {.style = style_of(request, route, options_.error_style),
                        .overload_status = options_.overload_status};
  request.key = keys_.find(api_key_of(request)).key;
  if (route != nullptr && route->max_body_bytes != kNoBody && !asks_for_key(*route)) {
    if (const auto refusal = page_guard_.refusal_of(request)) {
      request.stored_refusal = refusal->message;
    }
  }
  common_headers.emplace_back("x-request-id", request.id);
  const bool is_vain_preflight =
      request.method == "OPTIONS" && route != nullptr && check_page(request, *route);
  if (!is_vain_preflight) add_cors_headers(options_.cors, request, common_headers);
}

// Whether the route requires a key on this server.
bool RequestGate::asks_for_key(const Route& route) const {
  return (route.access != Access::kOpen && keys_.has_user_keys()) ||
         (route.access == Access::kAdmin && keys_.has_admin_key());
}

bool RequestGate::may_steer(const HttpRequest& request) const {
  const KeyRing::Holder holder = keys_.find(api_key_of(request));
  return keys_.has_admin_key() ? holder.admin : holder.known || !keys_.has_user_keys();
}

std::optional<ApiError> RequestGate::check_key(const HttpRequest& request,
                                               const Route& route) const {
  if (route.access == Access::kOpen) return std::nullopt;
  const KeyRing::Holder holder = keys_.find(api_key_of(request));
  const bool steers = route.access == Access::kAdmin && keys_.has_admin_key();
  if (steers ? holder.admin : holder.known || !keys_.has_user_keys()) return std::nullopt;
  if (steers && (holder.known || !keys_.has_user_keys())) {
    return ApiError{.status = 403,
                    .code = "admin_key_required",
                    .message = fmt::format("{} takes the admin key only. Send `Authorization: "
                                           "Bearer <admin key>`.",
                                           request.path)};
  }
  return ApiError{
      .status = 401,
      .code = "invalid_api_key",
      .message = "The API key is missing or wrong. Send `Authorization: Bearer <key>`."};
}

// Checks that no foreign page sent the request. Only needed where no key is required, because pages
// have no key.
std::optional<ApiError> RequestGate::check_page(const HttpRequest& request,
                                                const Route& route) const {
  if (route.concern == Concern::kAnswer || asks_for_key(route)) return std::nullopt;
  return page_guard_.refusal_of(request);
}

// Checks that the key may use this server's model. Checked for all routes, because not every one
// has a field for the model's name. Called when the model is loaded, so that its names are known.
std::optional<ApiError> RequestGate::check_models(const HttpRequest& request) const {
  const auto may_use = [&request](const std::string& name) {
    return may_use_model(request.key.get(), name);
  };
  if (request.key == nullptr || request.key->models.empty() ||
      std::ranges::any_of(options_.served_model_names, may_use)) {
    return std::nullopt;
  }
  return ApiError{
      .status = 404,
      .code = "model_not_found",
      .message = fmt::format("The key of {} may use the models {}; this server has none of them.",
                             request.key->name, fmt::join(request.key->models, ", ")),
      .param = "model"};
}

std::optional<HttpResponse> RequestGate::refusal_of(HttpRequest& request, const Route* route,
                                                    const std::optional<ApiError>& closed) {
  const auto refuse = [&request](const ApiError& error) { return error_response(error, request); };
  if (request.method == "OPTIONS") {
    const bool may_call = route == nullptr || !check_page(request, *route);
    return answer_preflight(options_.cors, request, route, may_call);
  }
  if (route == nullptr) {
    const std::string_view similar = similar_route(request.path);
    return refuse(
        {.status = 404,
         .code = "not_found",
         .message = fmt::format(
             "There is nothing at {}.{}", printable(request.path, 200),
             similar.empty() ? std::string() : fmt::format(" Did you mean {}?", similar))});
  }
  if (!allows(*route, request.method)) {
    HttpResponse response = refuse({.status = 405,
                                    .code = "method_not_allowed",
                                    .message = fmt::format("{} takes {}, not {}.", request.path,
                                                           route->allow, request.method)});
    response.headers.emplace_back("Allow", route->allow);
    return response;
  }
  if (const auto error = check_key(request, *route)) return refuse(*error);
  if (const auto error = check_page(request, *route)) return refuse(*error);
  const std::string encoding = lower_case(request.header("content-encoding"));
  if (!encoding.empty() && encoding != "identity") {
    return refuse({.status = 415,
                   .code = "unsupported_media_type",
                   .message = fmt::format(
                       "The body's Content-Encoding is {}; send it uncompressed.", encoding)});
  }
  if (route->endpoint == Endpoint::kNotServed ||
      (is_file_route(*route) && asks_as_anthropic(request))) {
    return refuse(
        {.status = 501,
         .code = "not_supported",
         .message = fmt::format("This server does not serve {}{}.", printable(request.path, 200),
                                is_file_route(*route) ? " as Anthropic has it" : "")});
  }
  const std::string type = media_type(request.header("content-type"));
  const char* const wanted_type =
      route->endpoint == Endpoint::kFiles ? "multipart/form-data" : "application/json";
  if (request.path.starts_with("/v1/") && request.method == "POST" &&
      route->max_body_bytes != kNoBody && type != wanted_type) {
    return refuse(
        {.code = "invalid_value",
         .message = fmt::format("The Content-Type is \"{}\"; it must be {}.",
                                printable(request.header("content-type"), 100), wanted_type)});
  }
  if (route->concern == Concern::kServer && is_form_content(type)) {
    return refuse(
        {.status = 415,
         .code = "unsupported_media_type",
         .message = fmt::format("The Content-Type is \"{}\"; {} takes application/json.",
                                printable(request.header("content-type"), 100), request.path)});
  }
  if (route->needs_model && closed) return refuse(*closed);
  if (route->needs_model) {
    if (const auto error = check_models(request)) return refuse(*error);
  }
  if (route->needs_model && route->concern != Concern::kServer && request.key != nullptr) {
    if (const auto error = keys_.begin_request(*request.key, std::chrono::steady_clock::now())) {
      return refuse(*error);
    }
    request.counted = true;
  }
  return std::nullopt;
}

void RequestGate::forget(const HttpRequest& request) {
  if (request.counted) keys_.end_request(*request.key);
}

}  // namespace heddle::server
