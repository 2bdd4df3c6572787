// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/module_pattern.h"

#include <array>
#include <string>

#include <fmt/format.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "checkpoint/readable.h"
#include "core/check.h"

namespace heddle::checkpoint {
namespace {

// Limits far above what a reasonable pattern needs on a path. They are a prefix of the pattern;
// limits in the file's own pattern can only tighten them.
constexpr std::string_view kLimits = "(*LIMIT_MATCH=100000)(*LIMIT_DEPTH=1000)(*LIMIT_HEAP=1024)";

PCRE2_SPTR units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

}  // namespace

Result<ModulePattern> ModulePattern::compile(std::string_view pattern) {
  const std::string limited = std::string(kLimits) + std::string(pattern);
  int error = 0;
  PCRE2_SIZE position = 0;
  pcre2_code* const code =
      pcre2_compile(units(limited), limited.size(), PCRE2_ANCHORED | PCRE2_NEVER_BACKSLASH_C,
                    &error, &position, nullptr);
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 256> words{};
    pcre2_get_error_message(error, words.data(), words.size());
    return invalid_argument(fmt::format("the pattern {} does not compile: {} at byte {}",
                                        readable(pattern),
                                        reinterpret_cast<const char*>(words.data()),
                                        position - std::min<PCRE2_SIZE>(position, kLimits.size())));
  }
  return ModulePattern(std::shared_ptr<const void>(code, [](const void* held) {
    pcre2_code_free(static_cast<pcre2_code*>(const_cast<void*>(held)));
  }));
}

bool ModulePattern::matches(std::string_view path) const {
  const auto* const code = static_cast<const pcre2_code*>(code_.get());
  pcre2_match_data* const data = pcre2_match_data_create(1, nullptr);
  HEDDLE_CHECK(data != nullptr);
  const int result = pcre2_match(code, units(path), path.size(), 0, 0, data, nullptr);
  pcre2_match_data_free(data);
  return result >= 0;
}

bool glob_matches(std::string_view glob, std::string_view path) {
  size_t next = 0;  // index in the glob
  size_t at = 0;    // index in the path
  size_t after_star = std::string_view::npos;
  size_t star_end = 0;  // end of the text that the last '*' matches
  while (true) {
    if (next < glob.size() && glob[next] == '*') {
      after_star = ++next;
      star_end = at;
    } else if (next == glob.size() && (at == path.size() || path[at] == '.')) {
      return true;
    } else if (next < glob.size() && at < path.size() && glob[next] == path[at]) {
      ++next;
      ++at;
    } else if (after_star != std::string_view::npos && star_end < path.size()) {
      next = after_star;  // the last '*' matches one more character
      at = ++star_end;
    } else {
      return false;
    }
  }
}

}  // namespace heddle::checkpoint
