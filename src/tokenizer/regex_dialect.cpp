// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex_dialect.h"

#include <vector>

#include <fmt/format.h>

#include "tokenizer/utf8.h"

namespace heddle::tokenizer {
namespace {

constexpr std::string_view kSpace = R"(\x{09}-\x{0D}\x{85}\p{Z})";
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHex = "0-9a-fA-F";

// The members of a shorthand's set, empty for any other escape.
std::string_view members_of(char letter) {
  switch (letter) {
    case 's':
    case 'S':
      return kSpace;
    case 'w':
    case 'W':
      return kWord;
    case 'h':
    case 'H':
      return kHex;
    default:
      return {};
  }
}

bool is_negated(char letter) { return letter >= 'A' && letter <= 'Z'; }

class Respeller {
 public:
  explicit Respeller(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        atom_ = out_.size();
        copy_escape();
      } else if (c == '[') {
        atom_ = out_.size();
        HEDDLE_RETURN_IF_ERROR(copy_set());
      } else if (c == '(') {
        groups_.push_back(out_.size());
        copy(1);
      } else if (c == ')') {
        if (!groups_.empty()) {  // PCRE2 reports one too many
          atom_ = groups_.back();
          groups_.pop_back();
        }
        copy(1);
      } else if (c == '{') {
        copy_interval();
      } else if (c == '*' || c == '+' || c == '?') {
        copy(1);
      } else {
        atom_ = out_.size();
        copy(utf8_length(c));
      }
    }
    return std::move(out_);
  }

 private:
  void copy(size_t length) {
    const std::string_view part = pattern_.substr(at_, length);
    out_.append(part);
    at_ += part.size();
  }

  // An escape outside of a set, with the {...} of \p{L} or \x{85}.
  void copy_escape() {
    const char letter = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    if (const std::string_view members = members_of(letter); !members.empty()) {
      out_.append(is_negated(letter) ? "[^" : "[").append(members).append("]");
      at_ += 2;
      return;
    }
    copy(at_ + 1 < pattern_.size() ? 1 + utf8_length(letter) : 1);
    copy_braces_of(letter);
  }

  void copy_braces_of(char letter) {
    if ((letter != 'p' && letter != 'P' && letter != 'x') || at_ >= pattern_.size() ||
        pattern_[at_] != '{')
      return;
    const size_t end = pattern_.find('}', at_);
    copy(end == std::string_view::npos ? pattern_.size() : end + 1 - at_);
  }

  // From '[' to its ']'. Sets inside are unions: their brackets go.
  Status copy_set() {
    size_t depth = 0;
    do {
      const char c = pattern_[at_];
      if (pattern_.substr(at_, 2) == "[:") {
        const size_t end = pattern_.find(":]", at_ + 2);
        copy(end == std::string_view::npos ? 2 : end + 2 - at_);
      } else if (c == '[') {
        const bool negated = pattern_.substr(at_ + 1, 1) == "^";
        if (depth > 0 && negated) return refuse("a negated set inside a set");
        if (depth == 0) out_.append(negated ? "[^" : "[");
        at_ += negated ? 2 : 1;
        if (++depth == 1 &&
            pattern_.substr(at_, 1) == "]") {  // a bracket that comes first is itself
          out_.append("\\]");
          ++at_;
        }
      } else if (c == ']') {
        if (--depth == 0) out_.append("]");
        ++at_;
      } else if (pattern_.substr(at_, 2) == "&&") {
        return refuse("an intersection of sets (&&)");
      } else if (c == '\\') {
        HEDDLE_RETURN_IF_ERROR(copy_escape_in_set());
      } else {
        copy(utf8_length(c));
      }
    } while (depth > 0 && at_ < pattern_.size());
    return ok_status();  // PCRE2 reports a set without its end
  }

  Status copy_escape_in_set() {
    const char letter = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    const std::string_view members = members_of(letter);
    if (members.empty()) {
      copy(at_ + 1 < pattern_.size() ? 1 + utf8_length(letter) : 1);
      copy_braces_of(letter);
      return ok_status();
    }
    if (letter == 'S') {  // PCRE2's own differs in U+180E alone, which is close enough to serve
      copy(2);
      return ok_status();
    }
    if (is_negated(letter)) return refuse(fmt::format("\\{} inside a set", letter));
    out_.append(members);
    at_ += 2;
    return ok_status();
  }

  // {n,m}, and the '+' behind it that repeats once more instead of making it possessive.
  void copy_interval() {
    const size_t end = pattern_.find('}', at_);
    const size_t digits_end = pattern_.find_first_not_of("0123456789,", at_ + 1);
    if (end == std::string_view::npos || digits_end != end || end == at_ + 1) {
      atom_ = out_.size();
      copy(1);  // a brace that is only itself
      return;
    }
    if (pattern_[at_ + 1] == ',') {  // {,m} counts from 0
      out_.append("{0");
      ++at_;
    }
    copy(end + 1 - at_);
    if (at_ < pattern_.size() && pattern_[at_] == '+') {
      out_.insert(atom_, "(?:").append(")+");
      ++at_;
    }
  }

  [[nodiscard]] Status refuse(std::string_view what) const {
    return unimplemented(fmt::format("the pattern '{}' has {} at byte {}, which is not supported",
                                     pattern_, what, at_));
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last thing that can be repeated starts in out_
  std::vector<size_t> groups_;  // where the open groups start in out_
};

}  // namespace

Result<std::string> respell_for_pcre2(std::string_view pattern) {
  if (!is_valid_utf8(pattern)) return invalid_argument("a pattern is not valid UTF-8");
  return Respeller(pattern).run();
}

}  // namespace heddle::tokenizer
