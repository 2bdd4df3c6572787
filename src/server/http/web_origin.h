// SPDX-License-Identifier: Apache-2.0
// The host that a request was sent to (Host) and the web page that sent it (Origin), as values that
// can be compared: upper and lower case, a dot at the end of a name, brackets and spellings of an
// IPv6 address and default ports make no difference.
//
// Threading: free functions without state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle::server {

// "localhost:30000" or "[::1]:30000".
struct HostAndPort {
  std::string host;  // in lower case, without brackets and without a dot at its end
  std::string port;  // digits; "" where none was given
  bool is_ip_address = false;
};

// None where the text is no host, with a port or without one.
[[nodiscard]] std::optional<HostAndPort> parse_host(std::string_view text);

struct WebOrigin {
  std::string scheme;  // in lower case: "https"
  HostAndPort at;      // with the scheme's port where none was given, if it has one
};

// None for "null", which is the origin of pages that have none, and for what has a path.
[[nodiscard]] std::optional<WebOrigin> parse_origin(std::string_view text);

// "https://a.example" of "HTTPS://A.example.:443"; the text itself where it is no origin.
[[nodiscard]] std::string canonical_origin(std::string_view text);

// Whether a page of `origin` comes from the server that answers for `host`. A server that speaks
// plain HTTP may stand behind a proxy that speaks TLS, so that its pages' scheme is either;
// `speaks_tls` is false for it.
[[nodiscard]] bool is_own_origin(const WebOrigin& origin, const HostAndPort& host, bool speaks_tls);

}  // namespace heddle::server
