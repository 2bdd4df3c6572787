// SPDX-License-Identifier: Apache-2.0
#include "server/request_gate.h"

#include <chrono>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "server/caller.h"

namespace heddle::server {
namespace {

ErrorStyle style_of(std::string_view path, ErrorStyle otherwise) {
  if (path.starts_with("/v1/messages")) return ErrorStyle::kAnthropic;
  if (path.starts_with("/api/")) return ErrorStyle::kOllama;
  return otherwise;
}

// "application/json" of " Application/JSON; charset=utf-8".
std::string media_type(std::string_view content_type) {
  const std::string type = lower_case(content_type.substr(0, content_type.find(';')));
  const size_t first = type.find_first_not_of(" \t");
  if (first == std::string::npos) return {};
  return type.substr(first, type.find_last_not_of(" \t") - first + 1);
}

// The types that a browser lets any web page send to any server without asking the server first.
bool is_form_content(std::string_view content_type) {
  const std::string type = media_type(content_type);
  return type == "text/plain" || type == "application/x-www-form-urlencoded" ||
         type == "multipart/form-data";
}

// Whether a browser says that a page of another origin than the server's own makes the request.
bool comes_from_another_origin(const HttpRequest& request) {
  const std::string_view site = request.header("sec-fetch-site");
  if (!site.empty() && site != "same-origin" && site != "none") return true;
  const std::string_view origin = request.header("origin");
  if (origin.empty()) return false;
  const size_t host = origin.find("://");
  return host == std::string_view::npos ||  // "null"
         lower_case(origin.substr(host + 3)) != lower_case(request.header("host"));
}

}  // namespace

std::string_view request_id_prefix(std::string_view path) {
  if (path == "/v1/chat/completions") return "chatcmpl-";
  if (path == "/v1/completions") return "cmpl-";
  if (path == "/v1/messages") return "msg_";
  if (path == "/v1/responses") return "resp_";
  return "req-";
}

RequestGate::RequestGate(const ServerOptions& options)
    : options_(options), keys_(options.api_key, options.admin_api_key) {
  keys_.replace_named(options.api_keys);
}

void RequestGate::identify(HttpRequest& request, HttpHeaders& common_headers) const {
  const std::string& root = options_.root_path;
  if (!root.empty() && request.path.starts_with(root) &&
      (request.path.size() == root.size() || request.path[root.size()] == '/')) {
    request.path.erase(0, root.size());
    if (request.path.empty()) request.path = "/";
  }
  const std::string_view wanted_id = request.header("x-request-id");
  request.id = is_request_id(wanted_id) ? std::string(wanted_id)
                                        : new_request_id(request_id_prefix(request.path));
  request.error_form = {.style = style_of(request.path, options_.error_style),
                        .overload_status = options_.overload_status};
  request.key = keys_.find(api_key_of(request)).key;
  common_headers.emplace_back("x-request-id", request.id);
  add_cors_headers(options_.cors, request, common_headers);
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

// A web page can make its visitor's browser send requests to a server on the visitor's machine.
// Where no key protects the engine, it must not be steered so.
std::optional<ApiError> RequestGate::check_page(const HttpRequest& request) const {
  if (!keys_.has_user_keys() && !keys_.has_admin_key() && comes_from_another_origin(request)) {
    return ApiError{.status = 403,
                    .code = "cross_origin",
                    .message = fmt::format("{} takes no requests of web pages of other origins "
                                           "unless the server has an API key.",
                                           request.path)};
  }
  return std::nullopt;
}

// Likewise files, which stay on its disk: they come as forms, which browsers send unasked.
std::optional<ApiError> RequestGate::check_upload(const HttpRequest& request) const {
  if (media_type(request.header("content-type")) != "multipart/form-data") {
    return ApiError{.code = "invalid_value",
                    .message = fmt::format("The Content-Type is \"{}\"; it must be "
                                           "multipart/form-data.",
                                           printable(request.header("content-type"), 100))};
  }
  return check_page(request);
}

std::optional<ApiError> RequestGate::check_origin(const HttpRequest& request) const {
  if (auto error = check_page(request)) return error;
  if (is_form_content(request.header("content-type"))) {
    return ApiError{
        .status = 415,
        .code = "unsupported_media_type",
        .message = fmt::format("The Content-Type is \"{}\"; {} takes application/json.",
                               printable(request.header("content-type"), 100), request.path)};
  }
  return std::nullopt;
}

std::optional<HttpResponse> RequestGate::refusal_of(HttpRequest& request, const Route* route,
                                                    const std::optional<ApiError>& closed) {
  const auto refuse = [&request](const ApiError& error) { return error_response(error, request); };
  if (request.method == "OPTIONS") return answer_preflight(options_.cors, request, route);
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
  const std::string encoding = lower_case(request.header("content-encoding"));
  if (!encoding.empty() && encoding != "identity") {
    return refuse({.status = 415,
                   .code = "unsupported_media_type",
                   .message = fmt::format(
                       "The body's Content-Encoding is {}; send it uncompressed.", encoding)});
  }
  if (route->endpoint == Endpoint::kFiles && request.method == "POST") {
    if (const auto error = check_upload(request)) return refuse(*error);
  } else if (request.path.starts_with("/v1/") && request.method == "POST" &&
             route->max_body_bytes != kNoBody &&
             media_type(request.header("content-type")) != "application/json") {
    return refuse({.code = "invalid_value",
                   .message = fmt::format("The Content-Type is \"{}\"; it must be "
                                          "application/json.",
                                          request.header("content-type"))});
  }
  if (route->endpoint == Endpoint::kNotServed) {
    return refuse({.status = 501,
                   .code = "not_supported",
                   .message = fmt::format("This server does not serve {}.", request.path)});
  }
  if (route->control) {
    if (const auto error = check_origin(request)) return refuse(*error);
  }
  if (route->needs_model && closed) return refuse(*closed);
  if (route->needs_model && !route->control && request.key != nullptr) {
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
