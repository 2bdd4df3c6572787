// SPDX-License-Identifier: Apache-2.0
#include "server/http/web_origin.h"

#include <algorithm>
#include <array>
#include <utility>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include "server/http/http_message.h"

namespace heddle::server {
namespace {

constexpr size_t kMaxHostBytes = 255;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_digit(char c) { return c >= '0' && c <= '9'; }

// Whether a character may be in a registered name (RFC 3986, section 3.2.2). List separators are
// excluded: a proxy that joins two Host headers writes "a,b", and `a;b` is no host name either.
bool is_name_character(char c) {
  constexpr std::string_view kMarks = "-._~!$&'()*+=%";
  return is_letter(c) || is_digit(c) || kMarks.find(c) != std::string_view::npos;
}

// The canonical spelling of an IPv6 address. A zone ("%eth0") is removed, because it only has a
// meaning on the sender's machine.
std::optional<std::string> usual_ipv6(std::string_view text) {
  const std::string address(text.substr(0, text.find('%')));
  in6_addr bytes{};
  std::array<char, INET6_ADDRSTRLEN> usual{};
  if (inet_pton(AF_INET6, address.c_str(), &bytes) != 1 ||
      inet_ntop(AF_INET6, &bytes, usual.data(), usual.size()) == nullptr) {
    return std::nullopt;
  }
  return std::string(usual.data());
}

bool is_ipv4(const std::string& text) {
  in_addr bytes{};
  return inet_pton(AF_INET, text.c_str(), &bytes) == 1;
}

// The port in canonical form; "" if there is none; none if the text is no port.
std::optional<std::string> usual_port(std::string_view text) {
  if (!std::ranges::all_of(text, is_digit)) return std::nullopt;
  while (text.size() > 1 && text.front() == '0') text.remove_prefix(1);
  constexpr std::string_view kMaxPort = "65535";
  if (text.size() > kMaxPort.size() || (text.size() == kMaxPort.size() && text > kMaxPort)) {
    return std::nullopt;
  }
  return std::string(text);
}

std::string_view default_port(std::string_view scheme) {
  if (scheme == "http" || scheme == "ws") return "80";
  return scheme == "https" || scheme == "wss" ? "443" : "";
}

}  // namespace

std::optional<HostAndPort> parse_host(std::string_view text) {
  HostAndPort result;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    const auto address = usual_ipv6(text.substr(1, end - 1));
    if (!address) return std::nullopt;
    result.host = *address;
    result.is_ip_address = true;
    text.remove_prefix(end + 1);
  } else {
    const size_t end = std::min(text.find(':'), text.size());
    result.host = lower_case(text.substr(0, end));
    if (result.host.size() > kMaxHostBytes ||
        !std::ranges::all_of(result.host, is_name_character)) {
      return std::nullopt;
    }
    if (result.host.ends_with('.')) result.host.pop_back();
    if (result.host.empty()) return std::nullopt;
    result.is_ip_address = is_ipv4(result.host);
    text.remove_prefix(end);
  }
  if (text.empty()) return result;
  if (!text.starts_with(':')) return std::nullopt;
  const auto port = usual_port(text.substr(1));
  if (!port) return std::nullopt;
  result.port = *port;
  return result;
}

std::optional<WebOrigin> parse_origin(std::string_view text) {
  constexpr std::string_view kEnd = "://";
  const size_t scheme_end = text.find(kEnd);
  if (scheme_end == std::string_view::npos || scheme_end == 0 || !is_letter(text.front())) {
    return std::nullopt;
  }
  WebOrigin origin{.scheme = lower_case(text.substr(0, scheme_end)), .at = {}};
  const bool is_scheme = std::ranges::all_of(origin.scheme, [](char c) {
    return is_letter(c) || is_digit(c) || c == '+' || c == '-' || c == '.';
  });
  auto at = parse_host(text.substr(scheme_end + kEnd.size()));
  if (!is_scheme || !at) return std::nullopt;
  origin.at = *std::move(at);
  if (origin.at.port.empty()) origin.at.port = default_port(origin.scheme);
  return origin;
}

std::string canonical_origin(std::string_view text) {
  const auto origin = parse_origin(text);
  if (!origin) return std::string(text);
  const HostAndPort& at = origin->at;
  const bool has_brackets = at.is_ip_address && at.host.find(':') != std::string::npos;
  const bool shows_port = at.port != default_port(origin->scheme);
  return fmt::format("{}://{}{}{}{}{}", origin->scheme, has_brackets ? "[" : "", at.host,
                     has_brackets ? "]" : "", shows_port ? ":" : "", shows_port ? at.port : "");
}

bool is_own_origin(const WebOrigin& origin, const HostAndPort& host, bool speaks_tls) {
  if (origin.scheme != "https" && (origin.scheme != "http" || speaks_tls)) return false;
  const std::string_view port = host.port.empty() ? default_port(origin.scheme) : host.port;
  return origin.at.host == host.host && origin.at.port == port;
}

}  // namespace heddle::server
