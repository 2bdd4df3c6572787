// SPDX-License-Identifier: Apache-2.0
// ServerAddress: the address of an OpenAI-compatible server, parsed from a URL.
//
// Threading: free functions without state.
#pragma once

#include <string>
#include <string_view>

#include <heddle/status.h>

namespace heddle::tools {

struct ServerAddress {
  std::string host;
  std::string port;
  std::string path;  // path before "/v1"; "" for most servers
  bool tls = false;
  bool insecure = false;  // true: any TLS certificate is accepted

  // The URL, without "/v1".
  [[nodiscard]] std::string url() const;

  // The value of the header Host.
  [[nodiscard]] std::string host_header() const;
};

// Parses "http://127.0.0.1:30000" or "https://host", with or without "/v1" at its end. Error:
// kInvalidArgument for another scheme, or for an invalid address.
Result<ServerAddress> parse_server_address(std::string_view url);

}  // namespace heddle::tools
