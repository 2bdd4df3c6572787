// SPDX-License-Identifier: Apache-2.0
// JSON numbers between bounds, as text. They have at most 18 digits, no exponent and no "-0", so
// that rounding in a client's parser cannot move them past a bound.
//
// Threading: free functions.
#pragma once

#include <cstdint>

#include <nlohmann/json_fwd.hpp>

#include <heddle/status.h>

#include "grammar/nfa.h"

namespace heddle::grammar {

// A decimal number times 10^9: exact, and wide enough for all comparisons.
using Nanos = __int128;

inline constexpr Nanos kNanosPerUnit = 1'000'000'000;
inline constexpr Nanos kMaxInteger = 999'999'999'999'999'999;  // the largest integer of 18 digits

// The number in units of 10^-9. A number beyond +-10^18 becomes +-10^18: the grammar writes larger
// numbers only if an enum or a const lists them. `number` may be one of the byte strings that
// represent numbers wider than 64 bits (core/exact_json.h).
// Error: kInvalidArgument for a number with more than 9 decimals.
Result<Nanos> nanos_of(const nlohmann::ordered_json& number);

struct NumberRange {
  Nanos min = -kMaxInteger * kNanosPerUnit;
  Nanos max = kMaxInteger * kNanosPerUnit;
  bool excludes_min = false;
  bool excludes_max = false;
};

// Adds the integers of the range, without a fraction.
void add_integers(Nfa& nfa, NfaState from, const NumberRange& range, NfaState to);

// Adds the numbers of the range with 0 to 6 decimals.
void add_decimals(Nfa& nfa, NfaState from, const NumberRange& range, NfaState to);

// Adds integers of any length that are multiples of `divisor` (1 to 1000); meant to be intersected
// with another set.
void add_multiples(Nfa& nfa, NfaState from, int divisor, NfaState to);

// Add any number with at most 18 digits before the point, 17 after it, and an exponent of two
// digits; the second function: any integer with at most 18 digits.
void add_any_number(Nfa& nfa, NfaState from, NfaState to);
void add_any_integer(Nfa& nfa, NfaState from, NfaState to);

}  // namespace heddle::grammar
