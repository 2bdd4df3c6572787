// SPDX-License-Identifier: Apache-2.0
// PageGuard: protects a server without API keys from foreign web pages. A web page can make its
// visitor's browser send requests to every server that the browser reaches, even to one on the
// visitor's machine that nobody else can reach. The guard refuses requests that such a page must
// not make, unless both of these hold:
//
//   The sender  has no Origin, and no Sec-Fetch-Site of another site; or its Origin is the server's
//               own, or is listed in --cors-allow-origins ("*" lists none).
//   The Host    is an IP address, localhost, this machine's name, the name in --host, or one of
//               --allowed-hosts. If the owner of a page lets its name resolve to the server's
//               address (DNS rebinding), the page has the server's own origin, but under that name.
//               A unix socket, which no page can reach, accepts any Host.
//
// Browsers set these three headers themselves, and pages cannot change them. A client that is no
// browser can send anything: the guard protects the browser's user and does not replace a key.
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

// Checks an entry of --allowed-hosts: "a.example", "*.example" for all names below it, or "*" for
// every host. Error: kInvalidArgument for anything else.
Status check_allowed_host(std::string_view name);

// Checks an entry of --cors-allow-origins: "https://a.example:8443", "null", or "*". Error:
// kInvalidArgument for anything else.
Status check_allowed_origin(std::string_view origin);

class PageGuard {
 public:
  // `options` outlives the guard.
  explicit PageGuard(const GateOptions& options);

  // Returns a 403 that names the option to change if a foreign page may have sent the request; none
  // if not.
  [[nodiscard]] std::optional<ApiError> refusal_of(const HttpRequest& request) const;

 private:
  [[nodiscard]] std::optional<ApiError> check_host(const HttpRequest& request) const;
  [[nodiscard]] std::optional<ApiError> check_sender(const HttpRequest& request) const;
  [[nodiscard]] bool is_named_origin(std::string_view origin) const;

  const GateOptions& options_;
  const bool is_unix_socket_;
  std::vector<std::string> own_names_;  // names of this machine, in the form of HostAndPort::host
};

}  // namespace heddle::server
