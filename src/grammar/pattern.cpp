// SPDX-License-Identifier: Apache-2.0
#include "grammar/pattern.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "grammar/unicode_classes.h"

namespace heddle::grammar {

struct PatternNode {
  enum class Kind : uint8_t { kSet, kSequence, kAlternatives, kRepeat, kBegin, kEnd };

  Kind kind = Kind::kSequence;
  CodePointSet set;                   // for kSet: the characters that match
  std::vector<PatternNode> children;  // for kSequence and kAlternatives; for kRepeat one
  int min = 0;                        // for kRepeat: fewest repeats
  int max = 0;                        // for kRepeat: most repeats; negative: unlimited
};

namespace {

using Kind = PatternNode::Kind;

PatternNode set_node(CodePointSet set) {
  PatternNode node;
  node.kind = Kind::kSet;
  node.set = std::move(set);
  return node;
}

CodePointSet digits() { return {{.first = '0', .last = '9'}}; }

CodePointSet word_letters() {
  return {{.first = '0', .last = '9'},
          {.first = 'A', .last = 'Z'},
          {.first = '_', .last = '_'},
          {.first = 'a', .last = 'z'}};
}

CodePointSet blanks() {
  return {{.first = 9, .last = 13},          {.first = ' ', .last = ' '},
          {.first = 0xA0, .last = 0xA0},     {.first = 0x1680, .last = 0x1680},
          {.first = 0x2000, .last = 0x200A}, {.first = 0x2028, .last = 0x2029},
          {.first = 0x202F, .last = 0x202F}, {.first = 0x205F, .last = 0x205F},
          {.first = 0x3000, .last = 0x3000}, {.first = 0xFEFF, .last = 0xFEFF}};
}

// The class that an escape's letter means: \d, \W and so on.
std::optional<CodePointSet> escaped_class(uint32_t letter) {
  switch (letter) {
    case 'd':
      return digits();
    case 'D':
      return complement(digits());
    case 'w':
      return word_letters();
    case 'W':
      return complement(word_letters());
    case 's':
      return blanks();
    case 'S':
      return complement(blanks());
    default:
      return std::nullopt;
  }
}

class PatternParser {
 public:
  explicit PatternParser(std::string_view text) : text_(text) {}

  Result<PatternNode> parse() {
    if (text_.size() > Pattern::kMaxBytes) {
      return invalid_argument(fmt::format("the pattern has {} bytes; at most {} are served",
                                          text_.size(), Pattern::kMaxBytes));
    }
    PatternNode node = alternatives(0);
    if (error_.empty() && position_ < text_.size()) fail("an unmatched )");
    if (error_.empty()) return node;
    return invalid_argument(fmt::format("the pattern has {} at byte {}{}", error_, error_position_,
                                        is_unserved_ ? ", which is not supported" : ""));
  }

 private:
  PatternNode alternatives(int depth) {
    PatternNode node;
    node.kind = Kind::kAlternatives;
    if (depth > Pattern::kMaxDepth) {
      fail(fmt::format("more than {} groups inside each other", Pattern::kMaxDepth));
      return node;
    }
    do {
      node.children.push_back(sequence(depth));
    } while (take('|'));
    if (node.children.size() > 1) return node;
    return std::move(node.children.front());
  }

  PatternNode sequence(int depth) {
    PatternNode node;
    while (error_.empty() && position_ < text_.size() && peek() != '|' && peek() != ')') {
      PatternNode part = atom(depth);
      // A repeat of a repeat is refused, as in ECMA-262.
      if (error_.empty() && part.kind != Kind::kBegin && part.kind != Kind::kEnd) {
        part = repeated(std::move(part));
      }
      node.children.push_back(std::move(part));
    }
    return node;
  }

  PatternNode atom(int depth) {
    const size_t start = position_;
    const uint32_t code = next_code_point(text_, position_);
    switch (code) {
      case '^':
        return anchor(Kind::kBegin);
      case '$':
        return anchor(Kind::kEnd);
      case '(':
        return group(depth, start);
      case '[':
        return set_node(character_class());
      case '\\':
        return escape();
      case '.':
        return set_node(complement({{.first = '\n', .last = '\n'},
                                    {.first = '\r', .last = '\r'},
                                    {.first = 0x2028, .last = 0x2029}}));
      case '*':
      case '+':
      case '?':
      case '{':
        fail("a repeat of nothing", start);
        return {};
      default:
        return set_node({{.first = code, .last = code}});
    }
  }

  static PatternNode anchor(Kind kind) {
    PatternNode node;
    node.kind = kind;
    return node;
  }

  PatternNode group(int depth, size_t start) {
    if (take('?')) {
      const bool is_python = take('P');
      if (take('<')) {
        if (!is_python && (peek() == '=' || peek() == '!')) {
          refuse("a look-behind", start);
          return {};
        }
        while (position_ < text_.size() && peek() != '>') ++position_;
        if (!take('>')) fail("a group's name without >", start);
      } else if (is_python || !take(':')) {
        refuse(group_kind(is_python), start);
        return {};
      }
    }
    PatternNode node = alternatives(depth + 1);
    if (error_.empty() && !take(')')) fail("a group without )", start);
    return node;
  }

  // Description of a group that is not supported, from the text after its (? or (?P.
  [[nodiscard]] std::string group_kind(bool is_python) const {
    if (is_python)
      return peek() == '=' ? "a back reference (?P=...)" : "a call of a group (?P>...)";
    switch (peek()) {
      case '=':
        return "a look-ahead (?=...)";
      case '!':
        return "a negative look-ahead (?!...)";
      case '>':
        return "an atomic group (?>...)";
      case '#':
        return "a comment (?#...)";
      default:
        break;
    }
    const size_t end = text_.find_first_of(":)", position_);
    const std::string_view flags = text_.substr(position_, std::min(end, text_.size()) - position_);
    const bool are_flags = !flags.empty() && flags.size() <= 8 &&
                           flags.find_first_not_of("aiLmsuxUn-") == std::string_view::npos;
    return are_flags ? fmt::format("a group of flags (?{})", flags)
                     : "a group (?...) of an unknown kind";
  }

  PatternNode repeated(PatternNode part) {
    int min = 0;
    int max = -1;
    const size_t start = position_;
    if (take('*')) {
    } else if (take('+')) {
      min = 1;
    } else if (take('?')) {
      max = 1;
    } else if (take('{')) {
      min = number();
      max = min;
      if (take(',')) max = peek() == '}' ? -1 : number();
      if (!take('}')) fail("a repeat that is not {m}, {m,} or {m,n}", start);
      if (error_.empty() && max >= 0 && max < min)
        fail("a repeat whose end is below its start", start);
    } else {
      return part;
    }
    take('?');  // lazy repeats match the same texts
    PatternNode node;
    node.kind = Kind::kRepeat;
    node.min = min;
    node.max = max;
    node.children.push_back(std::move(part));
    return node;
  }

  int number() {
    int value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + position_, text_.data() + text_.size(), value);
    if (error == std::errc::result_out_of_range) {
      value = kMaxCount;  // more repeats than any text has
    } else if (error != std::errc() || value < 0) {
      fail("a repeat without a number");
      return 0;
    }
    position_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  PatternNode escape() {
    if (position_ < text_.size()) {
      if (const auto set = escaped_class(static_cast<uint8_t>(peek()))) {
        ++position_;
        return set_node(*set);
      }
      if (peek() == 'b' || peek() == 'B') {
        refuse("a word boundary", position_ - 1);
        return {};
      }
      if (peek() == 'A' || peek() == 'Z' || peek() == 'z') {  // anchors of Python and Rust
        return anchor(text_[position_++] == 'A' ? Kind::kBegin : Kind::kEnd);
      }
      if (const auto set = property()) return set_node(*set);
    }
    const uint32_t code = escaped_code_point();
    return set_node({{.first = code, .last = code}});
  }

  // Reads \p{..}, \P{..} or \pL after the backslash; nullopt if it is something else.
  std::optional<CodePointSet> property() {
    if (peek() != 'p' && peek() != 'P') return std::nullopt;
    const size_t start = position_ - 1;
    const bool is_negated = text_[position_++] == 'P';
    std::string_view name = text_.substr(position_, 1);
    if (take('{')) {
      const size_t end = std::min(text_.find('}', position_), text_.size());
      name = text_.substr(position_, end - position_);
      position_ = end;
      if (!take('}')) fail("a \\p{...} without }", start);
    } else {
      position_ += name.size();
    }
    if (!error_.empty()) return CodePointSet{};
    std::optional<CodePointSet> set = unicode_class(name);
    if (!set) {
      fail(fmt::format("an unknown class of characters \\p{{{}}}", name.substr(0, 40)), start);
      return CodePointSet{};
    }
    return is_negated ? complement(*std::move(set)) : set;
  }

  // Reads the rest of an escape after the backslash.
  uint32_t escaped_code_point() {
    if (position_ == text_.size()) {
      fail("a backslash at the end");
      return 0;
    }
    const size_t start = position_;
    const uint32_t letter = next_code_point(text_, position_);
    switch (letter) {
      case 't':
        return '\t';
      case 'n':
        return '\n';
      case 'v':
        return '\v';
      case 'f':
        return '\f';
      case 'r':
        return '\r';
      case '0':
        return 0;
      case 'x':
        return hexadecimal(2);
      case 'u':
        return unicode();
      default:
        break;
    }
    if (letter < 0x80 &&
        std::string_view("^$\\.*+?()[]{}|/-\"'#&@%~!:;,<>=_` ").find(static_cast<char>(letter)) !=
            std::string_view::npos) {
      return letter;
    }
    const bool is_reference = (letter >= '1' && letter <= '9') || letter == 'k';
    refuse(fmt::format("{} {}", is_reference ? "a back reference" : "an escape",
                       text_.substr(start - 1, position_ - start + 1)),
           start - 1);
    return 0;
  }

  uint32_t unicode() {
    if (take('{')) {
      uint32_t code = 0;
      const auto [end, error] =
          std::from_chars(text_.data() + position_, text_.data() + text_.size(), code, 16);
      position_ = static_cast<size_t>(end - text_.data());
      if (error != std::errc() || code > kMaxCodePoint || !take('}'))
        fail("a \\u{...} without a character");
      return code;
    }
    const uint32_t first = hexadecimal(4);
    if (first < 0xD800 || first > 0xDBFF || text_.substr(position_, 2) != "\\u") return first;
    position_ += 2;
    const uint32_t second = hexadecimal(4);
    if (second < 0xDC00 || second > 0xDFFF) fail("an unpaired surrogate");
    return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
  }

  uint32_t hexadecimal(size_t count) {
    uint32_t code = 0;
    const std::string_view part = text_.substr(position_, count);
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), code, 16);
    if (part.size() < count || error != std::errc() || end != part.data() + part.size()) {
      fail("an escape with too few hexadecimal digits");
    }
    position_ += part.size();
    return code;
  }

  // Reads a class after the [.
  CodePointSet character_class() {
    const size_t start = position_ - 1;
    CodePointSet set;
    const bool is_negated = take('^');
    while (error_.empty()) {
      if (position_ >= text_.size()) {
        fail("a class without ]", start);
        break;
      }
      if (take(']')) break;
      std::optional<CodePointSet> several;
      const uint32_t first = class_member(several);
      if (several) {
        set.insert(set.end(), several->begin(), several->end());
        continue;
      }
      uint32_t last = first;
      if (peek() == '-' && position_ + 1 < text_.size() && text_[position_ + 1] != ']') {
        ++position_;
        last = class_member(several);
        if (several || last < first) fail("a range whose end is below its start");
      }
      set.push_back({.first = first, .last = last});
    }
    normalise(set);
    return is_negated ? complement(std::move(set)) : set;
  }

  uint32_t class_member(std::optional<CodePointSet>& several) {
    if (!take('\\')) return next_code_point(text_, position_);
    if (position_ < text_.size()) {
      several = escaped_class(static_cast<uint8_t>(peek()));
      if (several) {
        ++position_;
        return 0;
      }
      if (take('b')) return '\b';
      if ((several = property())) return 0;
    }
    return escaped_code_point();
  }

  [[nodiscard]] char peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }

  bool take(char letter) {
    if (position_ >= text_.size() || text_[position_] != letter) return false;
    ++position_;
    return true;
  }

  void fail(std::string message) { fail(std::move(message), position_); }

  void fail(std::string message, size_t position) {
    if (!error_.empty()) return;
    error_ = std::move(message);
    error_position_ = position;
  }

  // Fails at a construct that is valid in other regular expression engines but not supported here.
  void refuse(std::string construct, size_t position) {
    if (error_.empty()) is_unserved_ = true;
    fail(std::move(construct), position);
  }

  std::string_view text_;
  size_t position_ = 0;
  std::string error_;
  bool is_unserved_ = false;
  size_t error_position_ = 0;
};

// From this number of copies on, a character's copies are made of a deterministic automaton.
constexpr int kManyCopies = 4;

NfaState add_node(Nfa& nfa, NfaState from, const PatternNode& node, TextForm form) {
  if (!nfa.status().ok()) return from;
  switch (node.kind) {
    case Kind::kSet: {
      const NfaState to = nfa.add_state();
      add_code_points(nfa, from, node.set, form, to);
      return to;
    }
    case Kind::kSequence:
      for (const PatternNode& child : node.children) from = add_node(nfa, from, child, form);
      return from;
    case Kind::kAlternatives: {
      const NfaState to = nfa.add_state();
      for (const PatternNode& child : node.children) {
        nfa.add_empty(add_node(nfa, from, child, form), to);
      }
      return to;
    }
    case Kind::kRepeat: {
      const PatternNode& child = node.children.front();
      std::optional<ByteDfa> character;
      if (child.kind == Kind::kSet && std::max(node.min, node.max) >= kManyCopies) {
        character = code_points_dfa(child.set, form);
      }
      const auto add_child = [&](NfaState state) {
        if (!character) return add_node(nfa, state, child, form);
        const NfaState next = nfa.add_state();
        nfa.add_dfa(state, *character, next);
        return next;
      };
      for (int i = 0; i < node.min && nfa.status().ok(); ++i) {
        // An additional state limits repeats of an empty pattern.
        const NfaState next = nfa.add_state();
        nfa.add_empty(from, next);
        from = add_child(next);
      }
      const NfaState to = nfa.add_state();
      if (node.max < 0) {
        nfa.add_empty(from, to);
        nfa.add_empty(add_child(to), to);
        return to;
      }
      for (int i = node.min; i < node.max && nfa.status().ok(); ++i) {
        nfa.add_empty(from, to);
        const NfaState next = nfa.add_state();
        nfa.add_empty(from, next);
        from = add_child(next);
      }
      nfa.add_empty(from, to);
      return to;
    }
    case Kind::kBegin:
    case Kind::kEnd:
      return from;  // anchors are only allowed at the ends, where the caller handles them
  }
  return from;
}

bool has_anchor(const PatternNode& node) {
  return node.kind == Kind::kBegin || node.kind == Kind::kEnd ||
         std::ranges::any_of(node.children, has_anchor);
}

bool has_begin_node(const PatternNode& node) {
  return node.kind == Kind::kBegin || std::ranges::any_of(node.children, has_begin_node);
}

// Whether an anchor is anywhere but where add_search() looks for it.
bool has_inner_anchor(const PatternNode& node) {
  if (node.kind == Kind::kAlternatives) return std::ranges::any_of(node.children, has_inner_anchor);
  if (node.kind == Kind::kBegin || node.kind == Kind::kEnd) return false;
  if (node.kind != Kind::kSequence) return has_anchor(node);
  if (node.children.size() == 1) return has_inner_anchor(node.children.front());
  for (size_t i = 0; i < node.children.size(); ++i) {
    const PatternNode& child = node.children[i];
    if (i == 0 && child.kind == Kind::kBegin) continue;
    if (i + 1 == node.children.size() && child.kind == Kind::kEnd) continue;
    if (has_anchor(child)) return true;
  }
  return false;
}

// The fewest states that add_node() creates, counted up to a few more than a grammar may have:
// nested repeats multiply.
size_t least_states(const PatternNode& node) {
  constexpr size_t kMost = Nfa::kMaxStates + 1;
  size_t inside = node.kind == Kind::kSet ? 1 : 0;
  for (const PatternNode& child : node.children) {
    inside = std::min(inside + least_states(child), kMost);
  }
  if (node.kind != Kind::kRepeat) return inside;
  const auto copies = static_cast<size_t>(node.max < 0 ? std::max(node.min, 1) : node.max);
  return std::min((inside + 1) * copies, kMost);
}

void add_search_node(Nfa& nfa, NfaState from, const PatternNode& node, TextForm form, NfaState to) {
  if (node.kind == Kind::kAlternatives) {
    for (const PatternNode& child : node.children) add_search_node(nfa, from, child, form, to);
    return;
  }
  if (node.kind == Kind::kSequence && node.children.size() == 1) {
    add_search_node(nfa, from, node.children.front(), form, to);
    return;
  }
  const bool is_sequence = node.kind == Kind::kSequence && !node.children.empty();
  const Kind first = is_sequence ? node.children.front().kind : node.kind;
  const Kind last = is_sequence ? node.children.back().kind : node.kind;
  const auto add_anything = [&](NfaState state) {
    const NfaState loop = nfa.add_state();
    nfa.add_empty(state, loop);
    add_code_points(nfa, loop, all_code_points(), form, loop);
    return loop;
  };
  NfaState state = first == Kind::kBegin ? from : add_anything(from);
  state = add_node(nfa, state, node, form);
  if (last != Kind::kEnd) state = add_anything(state);
  nfa.add_empty(state, to);
}

// If the whole pattern is a repeat of one character, with or without anchors, that repeat;
// otherwise null. `Node` is PatternNode or const PatternNode.
template <typename Node>
Node* only_repeat(Node& root, bool is_anchored) {
  if (root.kind == Kind::kRepeat) {
    return !is_anchored && root.children.front().kind == Kind::kSet ? &root : nullptr;
  }
  if (root.kind != Kind::kSequence || root.children.empty()) return nullptr;
  const bool has_begin = root.children.front().kind == Kind::kBegin;
  const bool has_end = root.children.back().kind == Kind::kEnd;
  if (is_anchored && !(has_begin && has_end)) return nullptr;
  const size_t num_anchors = (has_begin ? 1 : 0) + (has_end ? 1 : 0);
  if (root.children.size() != num_anchors + 1) return nullptr;
  return only_repeat(root.children[has_begin ? 1 : 0], false);
}

// The largest repeat in the pattern other than `whole`.
int largest_repeat(const PatternNode& node, const PatternNode* whole) {
  int largest = node.kind == Kind::kRepeat && &node != whole ? std::max(node.min, node.max) : 0;
  for (const PatternNode& child : node.children) {
    largest = std::max(largest, largest_repeat(child, whole));
  }
  return largest;
}

}  // namespace

Pattern::Pattern(std::unique_ptr<PatternNode> root) : root_(std::move(root)) {}

Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Result<Pattern> Pattern::parse(std::string_view text) {
  HEDDLE_ASSIGN_OR_RETURN(PatternNode root, PatternParser(text).parse());
  if (has_inner_anchor(root)) {
    return invalid_argument(
        "the pattern has ^ or $ inside it; they are supported at the ends of the pattern and of "
        "its "
        "alternatives");
  }
  const PatternNode* const whole = only_repeat(std::as_const(root), false);
  if (const int count = largest_repeat(root, whole); count > kMaxRepeat) {
    return invalid_argument(
        fmt::format("the pattern repeats a part of it {} times; more than {} are supported only "
                    "where the whole pattern is one character that is repeated",
                    count, kMaxRepeat));
  }
  if (whole == nullptr && least_states(root) > Nfa::kMaxStates) {
    return invalid_argument(fmt::format(
        "the pattern needs more than {} states; use smaller repeat counts", Nfa::kMaxStates));
  }
  return Pattern(std::make_unique<PatternNode>(std::move(root)));
}

bool Pattern::has_begin() const { return has_begin_node(*root_); }

std::optional<Pattern::Repeated> Pattern::as_repeated(bool is_anchored) const {
  const PatternNode* const node = only_repeat(std::as_const(*root_), is_anchored);
  if (node == nullptr) return std::nullopt;
  Repeated repeated{.set = node->children.front().set, .range = {.min = node->min}};
  if (node->max >= 0) repeated.range.max = node->max;
  return repeated;
}

void Pattern::drop_counts() {
  PatternNode* const node = only_repeat(*root_, false);
  if (node == nullptr) return;
  node->min = 0;
  node->max = -1;
}

void Pattern::add_whole(Nfa& nfa, NfaState from, TextForm form, NfaState to) const {
  nfa.add_empty(add_node(nfa, from, *root_, form), to);
}

void Pattern::add_search(Nfa& nfa, NfaState from, TextForm form, NfaState to) const {
  add_search_node(nfa, from, *root_, form, to);
}

}  // namespace heddle::grammar
