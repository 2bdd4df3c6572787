// SPDX-License-Identifier: Apache-2.0
// RequestGate: decides from the head of a request whether it is served, by its path, its method,
// its key with that key's limits and models, the web page that may have sent it (PageGuard), and
// the coding and type of its body.
//
// Threading: confined to the I/O thread.
// Cost:      at most one look-up of a key (key_ring.h) per request.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "server/http/api_error.h"
#include "server/http/gate_options.h"
#include "server/http/http_message.h"
#include "server/http/key_ring.h"
#include "server/http/page_guard.h"
#include "server/http/routes.h"

namespace heddle::server {

// Prefix of the ids that requests for this path get, as "chatcmpl-".
[[nodiscard]] std::string_view request_id_prefix(std::string_view path);

class RequestGate {
 public:
  // `options` outlives the gate.
  explicit RequestGate(const GateOptions& options);

  // Normalises the path to the form in which routes are found: without a proxy's prefix, with or
  // without "/v1". Sets the request's id, key, form of errors and access to stored data, and the
  // headers of its answer.
  void identify(HttpRequest& request, HttpHeaders& common_headers) const;

  // Decides whether an identified request is refused whatever its body says; also answers OPTIONS.
  // `route` is null for an unknown path. `closed`: why routes that need the model are not served
  // now. A request that is accepted may be counted (HttpRequest::counted).
  [[nodiscard]] std::optional<HttpResponse> refusal_of(HttpRequest& request, const Route* route,
                                                       const std::optional<ApiError>& closed);

  // Whether the sender may control the server: it sent the admin key, if one is set, else any key,
  // if there are keys.
  [[nodiscard]] bool may_steer(const HttpRequest& request) const;

  // Ends the count of an answered request for its key.
  void forget(const HttpRequest& request);

  [[nodiscard]] KeyRing& keys() { return keys_; }

 private:
  [[nodiscard]] std::optional<ApiError> check_key(const HttpRequest& request,
                                                  const Route& route) const;
  [[nodiscard]] std::optional<ApiError> check_page(const HttpRequest& request,
                                                   const Route& route) const;
  [[nodiscard]] std::optional<ApiError> check_models(const HttpRequest& request) const;
  [[nodiscard]] bool asks_for_key(const Route& route) const;

  const GateOptions& options_;
  const PageGuard page_guard_;
  KeyRing keys_;
};

}  // namespace heddle::server
