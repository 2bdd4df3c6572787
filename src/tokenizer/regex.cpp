// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#define PCRE2_CODE_UNIT_WIDTH 8

#include <pcre2.h>

#include "core/check.h"
#include "core/printable.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {

namespace {

// The patterns of published models never use the JIT stack; the limit is for other patterns.
constexpr size_t kMinJitStackBytes = 32 << 10;
constexpr size_t kMaxJitStackBytes = 8 << 20;
// A bound on backtracking. Runs of spaces backtrack once per character, so it must exceed the
// length of the longest text; only a pattern that is exponential in the text's length needs more.
constexpr uint32_t kMatchLimit = 2'000'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;
constexpr size_t kMaxShownBytes = 1000;  // longest pattern shown in a message

struct FreeCompileContext {
  void operator()(pcre2_compile_context* context) const { pcre2_compile_context_free(context); }
};

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

struct RegexScratch::Buffers {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kMinJitStackBytes, kMaxJitStackBytes, nullptr);

  Buffers() {
    HEDDLE_CHECK(data != nullptr && context != nullptr);
    pcre2_set_match_limit(context, kMatchLimit);
    pcre2_set_heap_limit(context, kHeapLimitKib);
    // If the JIT stack could not be allocated, `stack` is null and PCRE2 uses the machine stack.
    pcre2_jit_stack_assign(context, nullptr, stack);
  }

  ~Buffers() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }

  Buffers(const Buffers&) = delete;
  Buffers& operator=(const Buffers&) = delete;
};

RegexScratch::RegexScratch() : buffers_(std::make_unique<Buffers>()) {}

RegexScratch::~RegexScratch() = default;

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool has_jit = false;

  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::unique_ptr<Code> code) : code_(std::move(code)) {}

Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::compile(std::string_view pattern) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string respelled, respell_for_pcre2(pattern));
  return compile_pcre2(respelled, 0);
}

Result<Regex> Regex::compile_literal(std::string_view text) {
  if (text.empty()) return invalid_argument("an empty pattern matches nowhere; give it a text");
  return compile_pcre2(text, PCRE2_LITERAL);
}

Result<Regex> Regex::compile_pcre2(std::string_view pattern, uint32_t extra_options) {
  const std::unique_ptr<pcre2_compile_context, FreeCompileContext> context(
      pcre2_compile_context_create(nullptr));
  HEDDLE_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  const uint32_t options = extra_options != 0
                               ? PCRE2_UTF | extra_options
                               : PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int error = 0;
  PCRE2_SIZE position = 0;
  auto code = std::make_unique<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options,
                             &error, &position, context.get());
  if (code->code == nullptr) {
    return invalid_argument(fmt::format("the pattern '{}' does not compile: {} at byte {}",
                                        printable(pattern, kMaxShownBytes), message_of(error),
                                        position));
  }
  code->has_jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  return Regex(std::move(code));
}

int Regex::match_at(std::string_view subject, size_t start, RegexScratch& scratch) const {
  const auto text = reinterpret_cast<PCRE2_SPTR>(subject.data());
  RegexScratch::Buffers& buffers = *scratch.buffers_;
  if (code_->has_jit) {
    const int result =
        pcre2_jit_match(code_->code, text, subject.size(), start, 0, buffers.data, buffers.context);
    if (result != PCRE2_ERROR_JIT_STACKLIMIT) return result;
  }
  return pcre2_match(code_->code, text, subject.size(), start, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                     buffers.data, buffers.context);
}

bool Regex::find(std::string_view subject, size_t start, RegexScratch& scratch, Span& match) const {
  while (start < subject.size()) {
    const int result = match_at(subject, start, scratch);
    if (result < 0) {
      if (result != PCRE2_ERROR_NOMATCH && scratch.status.ok()) {
        scratch.status = invalid_argument(
            fmt::format("the text of {} bytes cannot be split into words: {} at byte {}",
                        subject.size(), message_of(result), start));
      }
      return false;
    }
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(scratch.buffers_->data);
    if (bounds[1] > bounds[0]) {
      match = {.begin = bounds[0], .end = bounds[1]};
      return true;
    }
    if (bounds[0] >= subject.size()) return false;
    start = bounds[0] + utf8_length(subject[bounds[0]]);  // continues after an empty match
  }
  return false;
}

namespace {

constexpr std::string_view kSpace = R"(\x{09}-\x{0D}\x{85}\p{Z})";
constexpr std::string_view kWord = R"(\p{L}\p{M}\p{Nd}\p{Pc})";
constexpr std::string_view kHex = "0-9a-fA-F";

// The members of the set that a shorthand such as \s means; empty for any other escape.
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

// Whether a property's name is that of a script: \p{Han}, \p{^Greek}.
bool is_script(std::string_view name) {
  const bool negated = name.starts_with('^');
  const std::string pattern =
      fmt::format("\\p{{{}sc:{}}}", negated ? "^" : "", name.substr(negated ? 1 : 0));
  int error = 0;
  PCRE2_SIZE position = 0;
  pcre2_code* const code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP, &error, &position, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

constexpr std::array<std::string_view, 30> kCategories = {
    "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd", "Ps", "Pe",
    "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs", "Co", "Cn"};

// The members of the complement of a set of general categories; nullopt for any other set.
std::optional<std::string> complement_of_categories(std::string_view members) {
  std::array<bool, kCategories.size()> has{};
  while (!members.empty()) {
    if (!members.starts_with("\\p{")) return std::nullopt;
    const size_t end = members.find('}');
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view name = members.substr(3, end - 3);
    bool known = false;
    for (size_t i = 0; i < kCategories.size(); ++i) {
      const bool is_this = kCategories[i] == name || kCategories[i].substr(0, 1) == name;
      has[i] = has[i] || is_this;
      known = known || is_this;
    }
    if (!known) return std::nullopt;
    members.remove_prefix(end + 1);
  }
  std::string complement;
  for (size_t i = 0; i < kCategories.size(); ++i) {
    if (!has[i]) complement += fmt::format("\\p{{{}}}", kCategories[i]);
  }
  return complement;
}

// Finds the ends of character classes inside sets: [:alpha:]. As in Oniguruma, "[:" begins one if a
// ':' precedes the next ']'. Offsets must not decrease from call to call; all calls for a text
// together then take linear time.
class ClassEnds {
 public:
  // The offset after the class that begins at `at`; 0 if no class begins there.
  size_t find(std::string_view text, size_t at) {
    if (text.substr(at, 2) != "[:") return 0;
    if (bracket_ < at + 2) bracket_ = text.find(']', at + 2);
    const bool is_class =
        bracket_ != std::string_view::npos && bracket_ > at + 2 && text[bracket_ - 1] == ':';
    return is_class ? bracket_ + 1 : 0;
  }

 private:
  size_t bracket_ = 0;  // offset of the first ']' after the last "[:"
};

// The text of a set from '[' to ']', split at the intersections (&&) that are not inside another
// set.
struct SetText {
  std::vector<std::string_view> operands;
  size_t size = 0;  // 0: the closing ']' is missing
  bool negated = false;
};

bool has_braces(char letter) { return letter == 'p' || letter == 'P' || letter == 'x'; }

// The offset after the escape that begins at `at`, including the {...} of \p{L} or \x{85}.
size_t end_of_escape(std::string_view text, size_t at) {
  if (at + 2 >= text.size() || text[at + 2] != '{' || !has_braces(text[at + 1])) return at + 2;
  const size_t end = text.find('}', at);
  return end == std::string_view::npos ? text.size() : end + 1;
}

SetText read_set(std::string_view text) {
  SetText set{.negated = text.substr(1, 1) == "^"};
  ClassEnds class_ends;
  size_t depth = 0;
  size_t begin = set.negated ? 2 : 1;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '\\') {
      at = end_of_escape(text, at) - 1;
    } else if (const size_t end = depth > 0 ? class_ends.find(text, at) : 0; end > 0) {
      at = end - 1;
    } else if (text[at] == '[') {
      ++depth;
      if (text.substr(at + 1, 1) == "^") ++at;
      // a ']' directly after the opening bracket is literal
      if (depth == 1 && text.substr(at + 1, 1) == "]") ++at;
    } else if (text[at] == ']') {
      if (--depth > 0) continue;
      set.operands.push_back(text.substr(begin, at - begin));
      set.size = at + 1;
      return set;
    } else if (depth == 1 && text.substr(at, 2) == "&&") {
      set.operands.push_back(text.substr(begin, at - begin));
      begin = ++at + 1;
    }
  }
  return set;
}

class Respeller {
 public:
  explicit Respeller(std::string_view pattern, bool is_operand = false)
      : pattern_(pattern), is_operand_(is_operand) {}

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
        if (!groups_.empty()) {  // PCRE2 reports an unmatched closing parenthesis
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

  // Copies an escape outside of sets, including the {...} of \p{L} or \x{85}.
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
    if (!has_braces(letter) || at_ >= pattern_.size() || pattern_[at_] != '{') return;
    const size_t end = pattern_.find('}', at_);
    const size_t length = end == std::string_view::npos ? pattern_.size() : end + 1 - at_;
    const std::string_view name = pattern_.substr(at_ + 1, length < 2 ? 0 : length - 2);
    if (letter == 'x' || end == std::string_view::npos || !is_script(name)) {
      copy(length);
      return;
    }
    const bool negated = name.starts_with('^');
    out_.append(negated ? "{^sc:" : "{sc:").append(name.substr(negated ? 1 : 0)).append("}");
    at_ += length;
  }

  Status copy_intersection(const SetText& set) {
    if (is_operand_) return refuse("an intersection inside a set");
    if (set.negated) return refuse("a negated intersection of sets (&&)");
    std::vector<std::string> operands;
    bool only_negated = true;  // all operands but the first are negated sets
    for (const std::string_view operand : set.operands) {
      if (operand.empty()) return refuse("an intersection with nothing");
      const bool is_set = operand.starts_with('[') && read_set(operand).size == operand.size();
      if (operand.starts_with('^')) return refuse("an intersection with a '^' of its own");
      const std::string text = is_set ? std::string(operand) : fmt::format("[{}]", operand);
      HEDDLE_ASSIGN_OR_RETURN(std::string respelled, Respeller(text, true).run());
      only_negated = only_negated && (operands.empty() || respelled.starts_with("[^"));
      operands.push_back(std::move(respelled));
    }
    at_ += set.size;
    // A single set is matched in a loop, without memory for each character of a long word.
    std::optional<std::string> members =
        only_negated ? complement_of_categories(set.operands[0]) : std::nullopt;
    if (members) {
      for (size_t i = 1; i < operands.size(); ++i) {
        members->append(operands[i].substr(2, operands[i].size() - 3));
      }
      out_.append("[^").append(*members).append("]");
      return ok_status();
    }
    out_.append("(?:");
    for (size_t i = 1; i < operands.size(); ++i) out_.append("(?=").append(operands[i]).append(")");
    out_.append(operands[0]).append(")");
    return ok_status();
  }

  // Copies a set from '[' to ']'. Sets inside it are unions, so their brackets are dropped.
  Status copy_set() {
    const SetText set = read_set(pattern_.substr(at_));
    if (set.operands.size() > 1 && set.size > 0) return copy_intersection(set);
    size_t depth = 0;
    size_t members = 0;  // offset in out_ at which the members begin
    do {
      const char c = pattern_[at_];
      if (const size_t end = depth > 0 ? class_ends_.find(pattern_, at_) : 0; end > 0) {
        copy(end - at_);
      } else if (c == '[') {
        const bool negated = pattern_.substr(at_ + 1, 1) == "^";
        if (depth > 0 && negated) return refuse("a negated set inside a set");
        if (depth == 0) {
          out_.append(negated ? "[^" : "[");
          members = out_.size();
        }
        at_ += negated ? 2 : 1;
        if (++depth == 1 && pattern_.substr(at_, 1) == "]") {  // a ']' directly after the opening
                                                               // bracket is literal
          out_.append("\\]");
          ++at_;
        }
      } else if (c == ']') {
        if (--depth == 0) {
          if (out_.size() == members) return refuse("an empty set");
          out_.append("]");
        }
        ++at_;
      } else if (pattern_.substr(at_, 2) == "&&") {
        return refuse("an intersection inside a set, or without its end");
      } else if (c == '\\') {
        HEDDLE_RETURN_IF_ERROR(copy_escape_in_set());
      } else {
        // Outside of a set PCRE2 interprets "[:", "[." and "[=" as a class.
        const bool is_first = out_.size() == members && out_.back() == '[';
        if (is_first && (c == ':' || c == '.' || c == '=')) out_ += '\\';
        copy(utf8_length(c));
      }
    } while (depth > 0 && at_ < pattern_.size());
    return ok_status();  // PCRE2 reports that the set has no end
  }

  Status copy_escape_in_set() {
    const char letter = at_ + 1 < pattern_.size() ? pattern_[at_ + 1] : '\0';
    const std::string_view members = members_of(letter);
    if (members.empty()) {
      copy(at_ + 1 < pattern_.size() ? 1 + utf8_length(letter) : 1);
      copy_braces_of(letter);
      return ok_status();
    }
    if (letter == 'S') {  // PCRE2's \S differs only in U+180E, which is acceptable
      copy(2);
      return ok_status();
    }
    if (is_negated(letter)) return refuse(fmt::format("\\{} inside a set", letter));
    out_.append(members);
    at_ += 2;
    return ok_status();
  }

  // Copies {n,m}. A '+' after it repeats the interval, as in Oniguruma; PCRE2 would make it
  // possessive.
  void copy_interval() {
    const size_t end = pattern_.find_first_not_of("0123456789,", at_ + 1);
    if (end == std::string_view::npos || pattern_[end] != '}' || end == at_ + 1) {
      atom_ = out_.size();
      copy(1);  // the brace is a literal character
      return;
    }
    if (pattern_[at_ + 1] == ',') {  // {,m} counts from 0 in Ruby syntax
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
                                     printable(pattern_, kMaxShownBytes), what, at_));
  }

  std::string_view pattern_;
  bool is_operand_;  // the pattern is an operand of an intersection
  size_t at_ = 0;
  ClassEnds class_ends_;
  std::string out_;
  size_t atom_ = 0;             // offset in out_ of the last repeatable item
  std::vector<size_t> groups_;  // offsets in out_ at which the open groups begin
};

}  // namespace

Result<std::string> respell_for_pcre2(std::string_view pattern) {
  if (!is_valid_utf8(pattern)) return invalid_argument("a pattern is not valid UTF-8");
  return Respeller(pattern).run();
}

}  // namespace heddle::tokenizer
