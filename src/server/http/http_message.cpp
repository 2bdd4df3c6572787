// SPDX-License-Identifier: Apache-2.0
#include "server/http/http_message.h"

#include <algorithm>

namespace heddle::server {
namespace {

// The value of a hexadecimal digit. Decoding is written by hand because Boost.URL is a compiled
// library, which the build does not link, and refuses targets with malformed escapes, which are
// accepted here.
int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Index at which the host begins in a target with a scheme; 0 for targets without one.
size_t authority_begin(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (lower_case(target.substr(0, scheme.size())) == scheme) return scheme.size();
  }
  return 0;
}

}  // namespace

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [field, value] : headers) {
    if (field == name) return value;
  }
  return {};
}

std::optional<std::string> HttpRequest::query_value(std::string_view name) const {
  for (std::string_view rest = query; !rest.empty();) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const size_t equals = std::min(pair.find('='), pair.size());
    if (percent_decode(pair.substr(0, equals)) != name) continue;
    return percent_decode(pair.substr(std::min(equals + 1, pair.size())));
  }
  return std::nullopt;
}

std::string_view origin_form(std::string_view target) {
  const size_t begin = authority_begin(target);
  if (begin == 0) return target;
  const size_t end = target.find_first_of("/?", begin);
  return end == std::string_view::npos ? "/" : target.substr(end);
}

std::string_view authority_of(std::string_view target) {
  const size_t begin = authority_begin(target);
  if (begin == 0) return {};
  return target.substr(begin, target.find_first_of("/?", begin) - begin);
}

std::string percent_decode(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      const int high = hex_digit(text[i + 1]);
      const int low = hex_digit(text[i + 2]);
      if (high >= 0 && low >= 0) {
        decoded += static_cast<char>(high * 16 + low);
        i += 2;
        continue;
      }
    }
    decoded += text[i];
  }
  return decoded;
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

}  // namespace heddle::server
