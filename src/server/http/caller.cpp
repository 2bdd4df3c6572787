// SPDX-License-Identifier: Apache-2.0
#include "server/http/caller.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>

#include <fmt/format.h>
#include <sys/random.h>

#include "core/check.h"
#include "server/http/key_ring.h"

namespace heddle::server {
namespace {

constexpr std::string_view kHeaderPrefix = "header:";

// Whether the text is a token of RFC 9110, section 5.6.2: no other text can be the name of a
// header.
bool is_header_name(std::string_view name) {
  constexpr std::string_view kMarks = "!#$%&'*+-.^_`|~";
  return !name.empty() && std::ranges::all_of(name, [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

}  // namespace

Result<FairKey> parse_fair_key(std::string_view text) {
  if (text == "none") return FairKey{.source = FairKey::Source::kNone, .header = {}};
  if (text == "user") return FairKey{.source = FairKey::Source::kUser, .header = {}};
  if (text == "api-key") return FairKey{.source = FairKey::Source::kApiKey, .header = {}};
  if (text.starts_with(kHeaderPrefix) && is_header_name(text.substr(kHeaderPrefix.size()))) {
    return FairKey{.source = FairKey::Source::kHeader,
                   .header = lower_case(text.substr(kHeaderPrefix.size()))};
  }
  return invalid_argument(
      fmt::format("\"{}\" is not known; use none, user, api-key or header:NAME", text));
}

std::string tenant_of(const FairKey& key, const HttpRequest& head, std::string_view user) {
  if (head.key != nullptr) return head.key->name;
  switch (key.source) {
    case FairKey::Source::kNone:
      break;
    case FairKey::Source::kUser:
      return std::string(user);
    case FairKey::Source::kApiKey: {
      const std::string_view sent = api_key_of(head);
      return sent.empty() ? "" : fmt::format("key-{:016x}", std::hash<std::string_view>()(sent));
    }
    case FairKey::Source::kHeader:
      return std::string(head.header(key.header));
  }
  return {};
}

std::string_view api_key_of(const HttpRequest& head) {
  constexpr std::string_view kScheme = "bearer ";
  std::string_view key = head.header("authorization");
  if (lower_case(key.substr(0, kScheme.size())) == kScheme) {
    key.remove_prefix(kScheme.size());
    return key;
  }
  key = head.header("x-api-key");
  return key.empty() ? head.header("api-key") : key;
}

bool equal_in_constant_time(std::string_view sent, std::string_view secret) {
  unsigned difference = sent.size() == secret.size() ? 0u : 1u;
  for (size_t i = 0; i < sent.size(); ++i) {
    const char other = i < secret.size() ? secret[i] : '\0';
    difference |= static_cast<unsigned>(static_cast<unsigned char>(sent[i]) ^
                                        static_cast<unsigned char>(other));
  }
  return difference == 0;
}

std::string new_request_id(std::string_view prefix) {
  std::array<uint64_t, 2> bits{};
  // getrandom() returns so few bytes completely, and never fails once the system has booted.
  HEDDLE_CHECK_EQ(getrandom(bits.data(), sizeof(bits), 0), static_cast<ssize_t>(sizeof(bits)));
  return fmt::format("{}{:016x}{:016x}", prefix, bits[0], bits[1]);
}

bool is_request_id(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == ':' || c == '-';
  });
}

}  // namespace heddle::server
