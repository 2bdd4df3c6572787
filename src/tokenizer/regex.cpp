// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <vector>

#include <pcre2.h>

#include "core/check.h"
#include "tokenizer/utf8.h"

namespace heddle::tokenizer {

namespace {

// The patterns of published models never use the stack; the limit is for those that do.
constexpr size_t kMinJitStackBytes = 32 << 10;
constexpr size_t kMaxJitStackBytes = 8 << 20;
// A bound on backtracking. Runs of spaces backtrack once a character, so it must exceed the longest
// text; a pattern that needs more is exponential in it.
constexpr uint32_t kMatchLimit = 2'000'000'000;
constexpr uint32_t kHeapLimitKib = 64 << 10;

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
    // Without JIT `stack` is null: the machine stack.
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
    return invalid_argument(fmt::format("the pattern '{}' does not compile: {} at byte {}", pattern,
                                        message_of(error), position));
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
    start = bounds[0] + utf8_length(subject[bounds[0]]);  // step over an empty match
  }
  return false;
}

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
  size_t atom_ = 0;             // offset in out_ where the last repeatable item starts
  std::vector<size_t> groups_;  // offsets in out_ where the open groups start
};

}  // namespace

Result<std::string> respell_for_pcre2(std::string_view pattern) {
  if (!is_valid_utf8(pattern)) return invalid_argument("a pattern is not valid UTF-8");
  return Respeller(pattern).run();
}

}  // namespace heddle::tokenizer
