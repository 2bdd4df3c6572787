// SPDX-License-Identifier: Apache-2.0
#include "parsers/string_end.h"

#include <algorithm>
#include <string>

#include "parsers/loose_sign.h"
#include "parsers/loose_tag.h"

namespace heddle::parsers {
namespace {

constexpr std::string_view kLiteralWords[] = {"true", "false", "null", "True", "False", "None"};

// Beginnings of the words of tags that end a call.
constexpr std::string_view kCallTagWords[] = {"tool", "function", "python", "dsml", "invoke"};

class QuoteReader {
 public:
  QuoteReader(std::string_view behind, const StringContext& context, bool at_end)
      : rest_(behind.substr(0, kMaxLookahead)), context_(context) {
    starved_ = at_end || behind.size() >= kMaxLookahead ? Match::kYes : Match::kMore;
  }

  [[nodiscard]] Match read() {
    if (!skip_space()) return starved_;
    const LooseSign sign = read_wide_sign(rest_);
    if (sign.match == Match::kMore) return starved_;
    if (sign.match == Match::kYes && sign.meaning == ',') {
      rest_.remove_prefix(sign.size);
      return skip_space() ? read_behind_comma() : starved_;
    }
    switch (rest_.front()) {
      case ',':
      case ';':
        return read_next();
      case '}':
      case ']':
        return read_closed();
      case '"':
      case '\'':
        return context_.in_list ? read_item() : read_key(/*has_comma=*/false);
      case '<':
      case '[':
      case '`':
        return read_call_mark();
      default:
        return Match::kNo;
    }
  }

 private:
  // Skips white space, block comments, and line comments after white space. Returns false at the
  // text's end.
  bool skip_space() {
    for (size_t size = space_size(rest_); size > 0 || rest_.starts_with("/*");) {
      rest_.remove_prefix(size);
      const bool is_block = rest_.starts_with("/*");
      if (rest_ == "/" && starved_ == Match::kMore) rest_ = {};
      if (!is_block && !rest_.starts_with("//")) break;
      const size_t end = rest_.find(is_block ? std::string_view("*/") : "\n", 2);
      count_searched(std::min(end, rest_.size()));
      if (end == std::string_view::npos) {
        if (starved_ == Match::kMore) rest_ = {};
        break;
      }
      rest_.remove_prefix(end + (is_block ? 2 : 0));
      size = space_size(rest_);
    }
    return !rest_.empty();
  }

  bool skip(std::string_view what) {
    const size_t size = std::min(rest_.find_first_not_of(what), rest_.size());
    count_searched(size);
    rest_.remove_prefix(size);
    return !rest_.empty();
  }

  // Checks the text after a comma.
  Match read_next() {
    if (!skip(",;") || !skip_space() || !skip(",; \t\r\n")) return starved_;
    return read_behind_comma();
  }

  Match read_behind_comma() {
    const char c = rest_.front();
    const bool is_quote = c == '"' || c == '\'';
    if (c == '}' || c == ']') return Match::kYes;
    if (!context_.in_list) return is_quote ? read_key(/*has_comma=*/true) : Match::kNo;
    if (is_quote || c == '{' || c == '[' || c == '-' || (c >= '0' && c <= '9')) return Match::kYes;
    std::string_view ignored;
    const Match word = begins_with(rest_, kLiteralWords, &ignored);
    return word == Match::kMore ? starved_ : word;
  }

  // Checks the text after brackets that may close open objects and lists.
  Match read_closed() {
    size_t num_closed = 0;
    for (; !rest_.empty() && (rest_.front() == '}' || rest_.front() == ']'); ++num_closed) {
      rest_.remove_prefix(1);
      skip_space();
    }
    if (rest_.empty()) return starved_;
    const char c = rest_.front();
    if (c == '"' || c == '\'') return read_key(/*has_comma=*/false);
    if (num_closed >= context_.num_levels || c == ',') return Match::kYes;
    return read_call_mark();
  }

  // A quote within a list: it begins an item whose comma is missing, or it is the string's real
  // end.
  Match read_item() {
    rest_.remove_prefix(1);
    if (!skip_space()) return starved_;
    return std::string_view(",]}").find(rest_.front()) == std::string_view::npos ? Match::kYes
                                                                                 : Match::kNo;
  }

  // Checks for the next member's key and its colon. Without a comma before the key, key and colon
  // must be present.
  Match read_key(bool has_comma) {
    const Match starved = starved_ == Match::kMore || has_comma ? starved_ : Match::kNo;
    const char quote = rest_.front();
    rest_.remove_prefix(1);
    if (rest_.empty()) return starved;
    if (!has_comma && std::string_view(",]}:").find(rest_.front()) != std::string_view::npos) {
      return Match::kNo;
    }
    size_t size = 0;
    for (; size < rest_.size() && rest_[size] != quote; ++size) {
      if (rest_[size] == '\\') ++size;
    }
    count_searched(size);
    if (size >= rest_.size()) return starved;
    rest_.remove_prefix(size + 1);
    if (!skip_space()) return starved;
    if (rest_.front() == ':' || rest_.front() == '=') return Match::kYes;
    const LooseSign sign = read_wide_sign(rest_);
    if (sign.match == Match::kMore) return starved;
    return sign.match == Match::kYes && sign.meaning == ':' ? Match::kYes : Match::kNo;
  }

  // Checks for a mark that ends the call, whose closing brackets are missing.
  Match read_call_mark() {
    const Match mark = begins_call_mark(rest_);
    return mark == Match::kMore ? starved_ : mark;
  }

  std::string_view rest_;
  const StringContext context_;
  Match starved_;  // result if the text ends too early
};

}  // namespace

Match begins_call_mark(std::string_view text) {
  constexpr std::string_view kMarks[] = {"<|", "<｜", "```"};
  std::string_view ignored;
  const Match mark = begins_with(text, kMarks, &ignored);
  if (mark == Match::kYes) return Match::kYes;
  const LooseTag tag = read_loose_tag(text);
  const bool is_call_word = std::ranges::any_of(
      kCallTagWords, [&tag](std::string_view word) { return tag.word.starts_with(word); });
  if (tag.match == Match::kYes && is_call_word) return Match::kYes;
  return mark == Match::kMore || tag.match == Match::kMore ? Match::kMore : Match::kNo;
}

Match quote_ends_string(std::string_view behind, const StringContext& context, bool at_end) {
  return QuoteReader(behind, context, at_end).read();
}

}  // namespace heddle::parsers
