// SPDX-License-Identifier: Apache-2.0
#include "parsers/loose_sign.h"

#include <algorithm>

namespace heddle::parsers {
namespace {

struct WideSign {
  std::string_view written;
  char meaning;
};

constexpr WideSign kWideSigns[] = {{"：", ':'}, {"，", ','}, {"；", ','}};
constexpr std::string_view kEscapedQuote = "\\\"";

Match begins_sign(std::string_view text, std::string_view sign) {
  if (text.starts_with(sign)) return Match::kYes;
  return sign.starts_with(text) ? Match::kMore : Match::kNo;
}

}  // namespace

Match begins_triple_quote(std::string_view text, char quote) {
  const size_t size = std::min<size_t>(std::min(text.find_first_not_of(quote), text.size()), 3);
  if (size == 3) return Match::kYes;
  return size == text.size() ? Match::kMore : Match::kNo;
}

LooseSign read_wide_sign(std::string_view text) {
  for (const WideSign& sign : kWideSigns) {
    const Match match = begins_sign(text, sign.written);
    if (match == Match::kNo) continue;
    return {.match = match, .size = sign.written.size(), .meaning = sign.meaning};
  }
  return {};
}

LooseSign read_loose_sign(std::string_view text, bool before_value) {
  if (const LooseSign wide = read_wide_sign(text); wide.match != Match::kNo) return wide;
  const char first = text.front();
  if (before_value && (first == '"' || first == '\'')) {
    return {.match = begins_triple_quote(text, first),
            .kind = SignKind::kTripleQuote,
            .size = 3,
            .meaning = first};
  }
  return {.match = begins_sign(text, kEscapedQuote), .kind = SignKind::kEscapedObject};
}

char unescaped(char escaped) {
  switch (escaped) {
    case 'n':
      return '\n';
    case 'r':
      return '\r';
    case 't':
      return '\t';
    default:
      return escaped;
  }
}

}  // namespace heddle::parsers
