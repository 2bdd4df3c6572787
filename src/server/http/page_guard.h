// SPDX-License-Identifier: Apache-2.0
// PageGuard: which requests a server that asks for no key takes to be those of its own user. A web
// page can make its visitor's browser send requests to every server that the browser reaches, also
// to one on the visitor's machine that nobody else reaches. The guard refuses requests that such a
// page must not make, unless both of these hold:
//
//   The sender  has no Origin, and no Sec-Fetch-Site of another site; or its Origin is the server's
//               own, or is named in --cors-allow-origins ("*" names none).
//   The Host    is an IP address, localhost, this machine's name, that of --host, or one of
//               --allowed-hosts. A page whose owner lets its name point to the server's address
//               (DNS rebinding) is of the server's own origin, but under that name. To a unix
//               socket, which no page reaches, any Host is taken.
//
// Browsers set all three headers themselves, and pages cannot change them. A client that is no
// browser can send whatever it likes: the guard is for the browser's user, and no replacement for a
// key.
//
// Threading: immutable after construction.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "server/http/api_error.h"
#include "server/http/gate_options.h"
#include "server/http/http_message.h"

namespace heddle::server {

// Of --allowed-hosts: "a.example", "*.example" for all names below it, or "*" for every host.
// Error: kInvalidArgument for anything else.
Status check_allowed_host(std::string_view name);

// Of --cors-allow-origins: "https://a.example:8443", "null", or "*". Error: kInvalidArgument for
// anything else.
Status check_allowed_origin(std::string_view origin);

class PageGuard {
 public:
  // `options` outlives the guard.
  explicit PageGuard(const GateOptions& options);

  // Why a page could be behind the request; nothing where none can be. A 403 that names the option.
  [[nodiscard]] std::optional<ApiError> refusal_of(const HttpRequest& request) const;

 private:
  [[nodiscard]] std::optional<ApiError> check_host(const HttpRequest& request) const;
  [[nodiscard]] std::optional<ApiError> check_sender(const HttpRequest& request) const;
  [[nodiscard]] bool is_named_origin(std::string_view origin) const;

  const GateOptions& options_;
  const bool is_unix_socket_;
  std::vector<std::string> own_names_;  // as HostAndPort::host
};

}  // namespace heddle::server
