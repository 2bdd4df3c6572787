// SPDX-License-Identifier: Apache-2.0
// The host that a request was sent to (Host) and the web page that sent it (Origin), normalised so
// that they can be compared: letter case, a dot at the end of a name, brackets, spellings of an
// IPv6 address and default ports make no difference.
//
// Threading: free functions without state.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace heddle::server {

// A host and a port, as in "localhost:30000" or "[::1]:30000".
struct HostAndPort {
  std::string host;  // lower case, without brackets and without a final dot
  std::string port;  // port as digits; "" if the text has none
  bool is_ip_address = false;
};

// Parses a host with or without a port; none if the text is no host.
[[nodiscard]] std::optional<HostAndPort> parse_host(std::string_view text);

struct WebOrigin {
  std::string scheme;  // scheme in lower case, as "https"
  // Host and port; a missing port is replaced by the scheme's default, if it has one.
  HostAndPort at;
};

// Parses an origin; none for "null", the origin of pages that have none, and for texts with a path.
[[nodiscard]] std::optional<WebOrigin> parse_origin(std::string_view text);

// Normalises an origin: "https://a.example" for "HTTPS://A.example.:443"; other texts are
// unchanged.
[[nodiscard]] std::string canonical_origin(std::string_view text);

// Whether a page of `origin` comes from the server that answers for `host`. `speaks_tls` is false
// for a server that speaks plain HTTP; it may be behind a proxy that speaks TLS, so both schemes of
// its pages count as its own.
[[nodiscard]] bool is_own_origin(const WebOrigin& origin, const HostAndPort& host, bool speaks_tls);

}  // namespace heddle::server
