// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/regex.h"

#include <array>
#include <utility>

#include <fmt/format.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "core/check.h"
#include "tokenizer/regex_dialect.h"
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
    pcre2_jit_stack_assign(context, nullptr, stack);  // none (no JIT here) means the machine stack
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

}  // namespace heddle::tokenizer
