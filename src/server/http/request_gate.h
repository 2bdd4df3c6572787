// SPDX-License-Identifier: Apache-2.0
// RequestGate: decides from the head of a request whether it is served: its path, its method, its
// key and that key's limits and models, the web page that may be behind it (PageGuard), the coding
// and the type of its body.
//
// Threading: confined to the I/O thread.
// Cost:      of one look-up of a key (key_ring.h) at most.
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

// Of the ids that requests for a path get: "chatcmpl-".
[[nodiscard]] std::string_view request_id_prefix(std::string_view path);

class RequestGate {
 public:
  // `options` outlives the gate.
  explicit RequestGate(const GateOptions& options);

  // Brings the path into the form that routes are found by: without the prefix of a proxy, with or
  // without "/v1". Gives the request its id, its key, the form of its errors and what it may use of
  // what is stored, and the answer its headers.
  void identify(HttpRequest& request, HttpHeaders& common_headers) const;

  // Why an identified request is refused whatever its body says; OPTIONS are answered here, too.
  // `route` is null for an unknown path. `closed`: why no route that needs the model is served now.
  // A request that is taken may be counted (HttpRequest::counted).
  [[nodiscard]] std::optional<HttpResponse> refusal_of(HttpRequest& request, const Route* route,
                                                       const std::optional<ApiError>& closed);

  // Whether the sender of this request may steer the server: it has the admin key where there is
  // one, else any key where there are some.
  [[nodiscard]] bool may_steer(const HttpRequest& request) const;

  // An answered request no longer counts.
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
