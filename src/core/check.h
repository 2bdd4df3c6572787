// SPDX-License-Identifier: Apache-2.0
// Checks of Heddle's own invariants. A failed check is a bug in Heddle: it prints the values of
// both sides and aborts. Errors caused from outside are a Status instead (heddle/status.h).
//
// HEDDLE_DCHECK* are for hot loops: release builds (NDEBUG) contain none. Messages are formatted
// out of line, so this header is cheap to include and safe in CUDA sources.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

namespace heddle::internal {

[[noreturn]] void check_failed(std::string_view where, std::string_view condition,
                               std::string_view detail);

template <typename A, typename B>
[[noreturn]] void check_compare_failed(const char* where, const char* condition, const A& a,
                                       const B& b) {
  std::ostringstream detail;
  detail << a << " against " << b;
  check_failed(where, condition, detail.str());
}

}  // namespace heddle::internal

#define HEDDLE_STRINGIZE_INNER(x) #x
#define HEDDLE_STRINGIZE(x) HEDDLE_STRINGIZE_INNER(x)
#define HEDDLE_WHERE __FILE__ ":" HEDDLE_STRINGIZE(__LINE__)

#define HEDDLE_CHECK(condition)                                       \
  do {                                                                \
    if (!(condition)) [[unlikely]]                                    \
      ::heddle::internal::check_failed(HEDDLE_WHERE, #condition, ""); \
  } while (false)

#define HEDDLE_CHECK_COMPARE(a, b, op)                                                     \
  do {                                                                                     \
    const auto& heddle_a_ = (a);                                                           \
    const auto& heddle_b_ = (b);                                                           \
    if (!(heddle_a_ op heddle_b_)) [[unlikely]]                                            \
      ::heddle::internal::check_compare_failed(HEDDLE_WHERE, #a " " #op " " #b, heddle_a_, \
                                               heddle_b_);                                 \
  } while (false)

#define HEDDLE_CHECK_EQ(a, b) HEDDLE_CHECK_COMPARE(a, b, ==)
#define HEDDLE_CHECK_NE(a, b) HEDDLE_CHECK_COMPARE(a, b, !=)
#define HEDDLE_CHECK_LT(a, b) HEDDLE_CHECK_COMPARE(a, b, <)
#define HEDDLE_CHECK_LE(a, b) HEDDLE_CHECK_COMPARE(a, b, <=)
#define HEDDLE_CHECK_GE(a, b) HEDDLE_CHECK_COMPARE(a, b, >=)

#ifdef NDEBUG
#define HEDDLE_DCHECK(condition) \
  do {                           \
  } while (false && (condition))
#else
#define HEDDLE_DCHECK(condition) HEDDLE_CHECK(condition)
#endif
