// SPDX-License-Identifier: Apache-2.0
#include "grammar/ebnf.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "grammar/code_points.h"

namespace heddle::grammar {
namespace {

constexpr int kMaxEbnfDepth = 64;
constexpr int kMaxEbnfRepeat = 10000;
constexpr size_t kMaxEbnfRules = 20000;

bool is_name_letter(char letter) {
  return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') ||
         (letter >= '0' && letter <= '9') || letter == '_' || letter == '-';
}

// Reads a grammar and adds its rules. A repeat reads its element once for each copy.
class EbnfReader {
 public:
  EbnfReader(Nfa& nfa, std::string_view text) : nfa_(nfa), text_(text) {}

  Status read(NfaState from, NfaState to) {
    if (text_.size() > kMaxEbnfBytes) {
      fail(fmt::format("the grammar has {} bytes; at most {} are served", text_.size(),
                       kMaxEbnfBytes));
    }
    skip();
    while (is_fine() && position_ < text_.size()) read_rule();
    for (const auto& [name, rule] : rules_) {
      if (!rule.is_defined) fail(fmt::format("the rule \"{}\" is used but not defined", name));
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) {
      fail("there is no rule \"root\"; the answer is what root matches");
    } else {
      nfa_.add_call(from, root->second.id, to);
    }
    return nfa_.status();
  }

 private:
  struct NamedRule {
    RuleId id = 0;
    bool is_defined = false;
  };

  void read_rule() {
    const std::string name = read_name();
    skip();
    if (name.empty() || !take("::=")) {
      fail_here("expected a rule: NAME ::= ...");
      return;
    }
    NamedRule& rule = named(name);
    if (rule.is_defined) {
      fail_here(fmt::format("the rule \"{}\" is defined twice", name));
      return;
    }
    rule.is_defined = true;
    skip();
    const Nfa::Rule place = nfa_.rules()[rule.id];
    nfa_.add_empty(alternatives(place.begin, 0), place.end);
    if (is_fine() && position_ < text_.size() && !at_rule())
      fail_here("an element that is not understood");
  }

  NamedRule& named(const std::string& name) {
    const auto [entry, is_new] = rules_.try_emplace(name);
    if (is_new) {
      if (rules_.size() > kMaxEbnfRules) fail(fmt::format("more than {} rules", kMaxEbnfRules));
      entry->second.id = nfa_.add_rule(fmt::format("the rule \"{}\"", name));
    }
    return entry->second;
  }

  // Each of these functions adds what it reads after the state `from` and returns the state where
  // it ends.
  NfaState alternatives(NfaState from, int depth) {
    const NfaState to = nfa_.add_state();
    if (depth > kMaxEbnfDepth) {
      fail_here(fmt::format("more than {} groups inside each other", kMaxEbnfDepth));
      return to;
    }
    do {
      skip();
      nfa_.add_empty(sequence(from, depth), to);
    } while (is_fine() && take("|"));
    return to;
  }

  NfaState sequence(NfaState from, int depth) {
    while (is_fine() && position_ < text_.size() && text_[position_] != '|' &&
           text_[position_] != ')' && !at_rule()) {
      from = repeated(from, depth);
      skip();
    }
    return from;
  }

  NfaState repeated(NfaState from, int depth) {
    const size_t start = position_;
    // The first copy is read to find the end of the element; it is used if a copy is needed.
    const NfaState first = nfa_.add_state();
    NfaState end = element(first, depth);
    int min = 1;
    int max = 1;
    if (!read_repeat(min, max)) return from;
    const size_t after_repeat = position_;
    const auto copy = [&](NfaState begin) {
      position_ = start;
      const NfaState result = element(begin, depth);
      position_ = after_repeat;
      return result;
    };
    const NfaState to = nfa_.add_state();
    if (max == 0) return from;
    if (min == 0) nfa_.add_empty(from, to);
    nfa_.add_empty(from, first);
    if (max < 0) {
      for (int i = 1; i < min && is_fine(); ++i) end = copy(end);
      if (min <= 1) {
        nfa_.add_empty(end, first);
      } else {
        const NfaState loop = nfa_.add_state();
        nfa_.add_empty(end, loop);
        nfa_.add_empty(copy(loop), loop);
        end = loop;
      }
      nfa_.add_empty(end, to);
      return to;
    }
    for (int i = 1; i < max && is_fine(); ++i) {
      if (i >= min) nfa_.add_empty(end, to);
      const NfaState next = nfa_.add_state();
      nfa_.add_empty(end, next);
      end = copy(next);
    }
    nfa_.add_empty(end, to);
    return to;
  }

  bool read_repeat(int& min, int& max) {
    if (take("*")) {
      min = 0;
      max = -1;
    } else if (take("+")) {
      max = -1;
    } else if (take("?")) {
      min = 0;
    } else if (take("{")) {
      min = position_ < text_.size() && text_[position_] == ',' ? 0 : number();
      max = min;
      if (take(",")) max = position_ < text_.size() && text_[position_] == '}' ? -1 : number();
      if (!take("}")) fail_here("a repeat that is not {m}, {m,} or {m,n}");
      if (min > kMaxEbnfRepeat || max > kMaxEbnfRepeat || (max >= 0 && max < min)) {
        fail_here(fmt::format("repeat counts must ascend and be at most {}", kMaxEbnfRepeat));
      }
    }
    return is_fine();
  }

  int number() {
    int value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + position_, text_.data() + text_.size(), value);
    if (error != std::errc() || value < 0) fail_here("a repeat without a number up to 10000");
    position_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  NfaState element(NfaState from, int depth) {
    const NfaState to = nfa_.add_state();
    const char letter = text_[position_];
    if (letter == '"') {
      ++position_;
      literal(from, to);
    } else if (letter == '[') {
      ++position_;
      add_code_points(nfa_, from, character_class(), TextForm::kPlain, to);
    } else if (letter == '.') {
      ++position_;
      add_code_points(nfa_, from, all_code_points(), TextForm::kPlain, to);
    } else if (letter == '(') {
      ++position_;
      skip();
      nfa_.add_empty(alternatives(from, depth + 1), to);
      if (is_fine() && !take(")")) fail_here("a group without )");
    } else if (is_name_letter(letter)) {
      nfa_.add_call(from, named(read_name()).id, to);
    } else {
      fail_here("an element that is not understood");
    }
    return to;
  }

  void literal(NfaState from, NfaState to) {
    while (is_fine()) {
      if (position_ >= text_.size() || text_[position_] == '\n') {
        fail_here("a literal without a closing quote");
        return;
      }
      if (take("\"")) break;
      const uint32_t code = character();
      const NfaState next = nfa_.add_state();
      add_code_points(nfa_, from, {{.first = code, .last = code}}, TextForm::kPlain, next);
      from = next;
    }
    nfa_.add_empty(from, to);
  }

  CodePointSet character_class() {
    CodePointSet set;
    const bool is_negated = take("^");
    while (is_fine()) {
      if (position_ >= text_.size()) {
        fail_here("a class without ]");
        break;
      }
      if (take("]")) break;
      const uint32_t first = character();
      uint32_t last = first;
      if (position_ + 1 < text_.size() && text_[position_] == '-' && text_[position_ + 1] != ']') {
        ++position_;
        last = character();
        if (last < first) fail_here("a range whose end is below its start");
      }
      set.push_back({.first = first, .last = last});
    }
    normalise(set);
    return is_negated ? complement(std::move(set)) : set;
  }

  uint32_t character() {
    if (!take("\\")) return next_code_point(text_, position_);
    if (position_ >= text_.size()) {
      fail_here("a backslash at the end");
      return 0;
    }
    switch (const char letter = text_[position_++]) {
      case 'n':
        return '\n';
      case 'r':
        return '\r';
      case 't':
        return '\t';
      case 'x':
        return hexadecimal(2);
      case 'u':
        return hexadecimal(4);
      case 'U':
        return hexadecimal(8);
      case '"':
      case '\'':
      case '\\':
      case '[':
      case ']':
      case '-':
      case '^':
      case '/':
        return static_cast<uint8_t>(letter);
      default:
        fail_here("an escape that is not supported");
        return 0;
    }
  }

  uint32_t hexadecimal(size_t count) {
    uint32_t code = 0;
    const std::string_view part = text_.substr(position_, count);
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), code, 16);
    if (part.size() < count || error != std::errc() || end != part.data() + part.size() ||
        code > kMaxCodePoint) {
      fail_here("an escape that is no character");
      return 0;
    }
    position_ += count;
    return code;
  }

  std::string read_name() {
    const size_t begin = position_;
    while (position_ < text_.size() && is_name_letter(text_[position_])) ++position_;
    return std::string(text_.substr(begin, position_ - begin));
  }

  // Whether a rule begins here: a name, then ::=.
  [[nodiscard]] bool at_rule() const {
    size_t at = position_;
    while (at < text_.size() && is_name_letter(text_[at])) ++at;
    if (at == position_) return false;
    while (at < text_.size() && (text_[at] == ' ' || text_[at] == '\t')) ++at;
    return text_.substr(at, 3) == "::=";
  }

  void skip() {
    while (position_ < text_.size()) {
      const char letter = text_[position_];
      if (letter == '#') {
        while (position_ < text_.size() && text_[position_] != '\n') ++position_;
      } else if (letter == ' ' || letter == '\t' || letter == '\n' || letter == '\r') {
        ++position_;
      } else {
        return;
      }
    }
  }

  bool take(std::string_view token) {
    if (text_.substr(position_, token.size()) != token) return false;
    position_ += token.size();
    return true;
  }

  [[nodiscard]] bool is_fine() const { return nfa_.status().ok(); }

  void fail_here(std::string_view message) {
    const auto before = text_.substr(0, position_);
    fail(fmt::format("line {}: {}", std::ranges::count(before, '\n') + 1, message));
  }

  void fail(const std::string& message) {
    nfa_.fail(invalid_argument(fmt::format("EBNF grammar: {}", message)));
  }

  Nfa& nfa_;
  std::string_view text_;
  size_t position_ = 0;
  std::map<std::string, NamedRule> rules_;
};

}  // namespace

Status add_ebnf(Nfa& nfa, NfaState from, std::string_view text, NfaState to) {
  return EbnfReader(nfa, text).read(from, to);
}

}  // namespace heddle::grammar
