// SPDX-License-Identifier: Apache-2.0
#include "tools/load/server_address.h"

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include "tools/cli/value_range.h"

namespace heddle::tools {

std::string ServerAddress::host_header() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", is_v6 ? "[" : "", host, is_v6 ? "]" : "", port);
}

std::string ServerAddress::url() const {
  return fmt::format("{}://{}{}", tls ? "https" : "http", host_header(), path);
}

Result<ServerAddress> parse_server_address(std::string_view url) {
  const auto refuse = [url](std::string_view why) {
    return invalid_argument(fmt::format("\"{}\": {}", url, why));
  };
  std::string_view rest = url;
  ServerAddress address{.host = {}, .port = "80", .path = {}};
  if (rest.starts_with("https://")) {
    address.tls = true;
    address.port = "443";
  } else if (!rest.starts_with("http://") && rest.find("://") != std::string_view::npos) {
    return refuse("only http and https are spoken; write http://HOST:PORT");
  }
  if (const size_t scheme = rest.find("://"); scheme != std::string_view::npos) {
    rest.remove_prefix(scheme + 3);
  }
  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    std::string_view path = rest.substr(slash);
    while (path.ends_with('/')) path.remove_suffix(1);
    if (path.ends_with("/v1")) path.remove_suffix(3);
    address.path = path;
  }
  std::string_view place = rest.substr(0, slash);
  const size_t colon = place.rfind(':');
  if (colon != std::string_view::npos && place.find(']', colon) == std::string_view::npos) {
    const auto port = parse_number<uint16_t>(place.substr(colon + 1), {.low = 1, .high = 65535});
    if (!port.ok()) return refuse(fmt::format("the port: {}", port.status().message()));
    address.port = fmt::format("{}", *port);
    place = place.substr(0, colon);
  }
  if (place.starts_with('[') && place.ends_with(']')) place = place.substr(1, place.size() - 2);
  const bool plain = std::ranges::all_of(url, [](char c) { return c > ' ' && c < 0x7f; });
  if (place.empty() || !plain || place.find_first_of("@?#[]") != std::string_view::npos) {
    return refuse("it is no address; write http://HOST:PORT");
  }
  address.host = place;
  return address;
}

}  // namespace heddle::tools
