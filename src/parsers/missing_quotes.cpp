// SPDX-License-Identifier: Apache-2.0
#include "parsers/missing_quotes.h"

#include <algorithm>

namespace heddle::parsers {
namespace {

constexpr std::string_view kQuotes = "\"'";
constexpr std::string_view kLiterals[] = {"true", "false", "null", "True", "False", "None"};

bool is_quote(char c) { return kQuotes.find(c) != std::string_view::npos; }

bool is_word_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// A bounded part of the text, and the result if the text ends too early.
class Lookahead {
 public:
  Lookahead(std::string_view text, bool at_end)
      : rest_(text.substr(0, kMaxLookahead)),
        starved_(at_end || text.size() >= kMaxLookahead ? Match::kNo : Match::kMore) {}

  [[nodiscard]] std::string_view rest() const { return rest_; }

  [[nodiscard]] Match starved() const { return starved_; }

  void advance(size_t size) { rest_.remove_prefix(size); }

  // Skips white space. Returns false at the end of the text.
  bool skip_space() {
    advance(space_size(rest_));
    return !rest_.empty();
  }

  // Reads the bytes before the first of `stops`; false if there is none.
  bool read_until(std::string_view stops, std::string_view& bytes) {
    const size_t size = std::min(rest_.find_first_of(stops), rest_.size());
    count_searched(size);
    bytes = rest_.substr(0, size);
    advance(size);
    return !rest_.empty();
  }

 private:
  std::string_view rest_;
  Match starved_;
};

// Reads a member's key, its closing quote, which may be missing, and a colon.
Match read_member_key(Lookahead& text, const KeyTest& is_key) {
  std::string_view key;
  if (!text.read_until("\"':=,{}[]\n", key)) return text.starved();
  while (key.ends_with(' ')) key.remove_suffix(1);
  if (!is_key(key)) return Match::kNo;
  if (is_quote(text.rest().front())) text.advance(1);
  if (!text.skip_space()) return text.starved();
  return text.rest().front() == ':' || text.rest().front() == '=' ? Match::kYes : Match::kNo;
}

}  // namespace

Match begins_next_member(std::string_view text, const KeyTest& is_key, std::optional<char> quote,
                         bool at_end) {
  Lookahead ahead(text, at_end);
  if (!ahead.skip_space()) return ahead.starved();
  if (ahead.rest().front() != ',') return Match::kNo;
  ahead.advance(1);
  if (!ahead.skip_space()) return ahead.starved();
  const char first = ahead.rest().front();
  if (quote ? first != *quote : !is_quote(first) && !is_word_byte(first)) return Match::kNo;
  if (is_quote(first)) ahead.advance(1);
  return read_member_key(ahead, is_key);
}

Match key_ends_before(std::string_view text, std::string_view key, const KeyTest& is_key,
                      bool at_end) {
  if (!is_key(key)) return Match::kNo;
  Lookahead ahead(text, at_end);
  if (is_quote(ahead.rest().front())) {
    ahead.advance(1);
    if (!ahead.skip_space()) return ahead.starved();
    return ahead.rest().front() == ':' ? Match::kYes : Match::kNo;
  }
  ahead.advance(1);
  // If a later quote precedes a colon, that quote ends the key, and the first colon is part of it.
  std::string_view ignored;
  const bool found = ahead.read_until(kQuotes, ignored);
  if (found) ahead.advance(1);
  if (!found || !ahead.skip_space()) {
    return ahead.starved() == Match::kMore ? Match::kMore : Match::kYes;
  }
  return ahead.rest().front() == ':' ? Match::kNo : Match::kYes;
}

Match begins_bare_key(std::string_view text, const KeyTest& is_key, bool at_end) {
  if (!is_word_byte(text.front())) return Match::kNo;
  Lookahead ahead(text, at_end);
  return read_member_key(ahead, is_key);
}

Match begins_bare_string(std::string_view text, const KeyTest& is_key, size_t num_levels,
                         bool at_end) {
  if (!is_word_byte(text.front())) return Match::kNo;
  for (const std::string_view literal : kLiterals) {
    if (text.size() < literal.size() && literal.starts_with(text)) {
      return at_end ? Match::kNo : Match::kMore;
    }
    if (!text.starts_with(literal)) continue;
    const std::string_view behind = text.substr(literal.size());
    if (behind.empty()) return at_end ? Match::kNo : Match::kMore;
    if (!is_word_byte(behind.front())) return Match::kNo;
  }
  Lookahead ahead(text, at_end);
  std::string_view bytes;
  while (true) {
    if (!ahead.read_until(",\"{}[]\n", bytes)) return ahead.starved();
    const char c = ahead.rest().front();
    if (c == ',') {  // the string's closing quote may be missing
      const Match next =
          begins_next_member(ahead.rest(), is_key, /*quote=*/{}, ahead.starved() == Match::kNo);
      if (next != Match::kNo) return next;
      ahead.advance(1);
      continue;
    }
    if (c == '}') {  // the string may be the last member
      return quote_ends_string(ahead.rest(), {.in_list = false, .num_levels = num_levels},
                               ahead.starved() == Match::kNo);
    }
    if (c != '"') return Match::kNo;
    ahead.advance(1);
    return quote_ends_string(ahead.rest(), {.in_list = false, .num_levels = num_levels},
                             ahead.starved() == Match::kNo);
  }
}

Match ends_last_string(std::string_view text, const StringContext& context, char quote,
                       TextEnd end) {
  const bool is_all = end == TextEnd::kStopped && text.size() < kMaxLookahead;
  Lookahead ahead(text, /*at_end=*/end != TextEnd::kNone);
  const Match at_text_end = is_all ? Match::kYes : ahead.starved();
  if (!ahead.skip_space()) return ahead.starved();
  if (ahead.rest().front() != (context.in_list ? ']' : '}')) return Match::kNo;
  // Also counts the call's own object and a list of calls.
  const size_t most_closers = context.num_levels + 2;
  for (size_t i = 0; ahead.rest().front() == '}' || ahead.rest().front() == ']'; ++i) {
    if (i == most_closers) return Match::kNo;
    ahead.advance(1);
    if (!ahead.skip_space()) return at_text_end;
  }
  const Match mark = begins_call_mark(ahead.rest());
  if (mark != Match::kYes) return mark == Match::kMore ? ahead.starved() : Match::kNo;
  const char stops[] = {quote, '\\', '\0'};
  std::string_view ignored;
  while (ahead.read_until({stops, 2}, ignored)) {
    const bool is_escape = ahead.rest().front() == '\\';
    ahead.advance(std::min<size_t>(is_escape ? 2 : 1, ahead.rest().size()));
    if (is_escape) continue;
    switch (quote_ends_string(ahead.rest(), context, ahead.starved() == Match::kNo)) {
      case Match::kYes:
        return Match::kNo;
      case Match::kNo:
        return Match::kYes;
      case Match::kMore:
        return Match::kMore;
    }
  }
  return at_text_end;
}

}  // namespace heddle::parsers
