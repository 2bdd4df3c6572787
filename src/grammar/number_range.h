// SPDX-License-Identifier: Apache-2.0
// Numbers of JSON between bounds, as text. They have at most 18 digits, no exponent and no "-0", so
// that no reader's rounding carries them across a bound.
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
inline constexpr Nanos kMaxInteger = 999'999'999'999'999'999;  // 18 digits

// The number in units of 10^-9. One beyond 10^18 becomes 10^18 with its sign: the grammar writes
// larger numbers only where an enum or a const lists them. `number` may be one of the byte strings
// that stand for numbers wider than 64 bits (core/exact_json.h).
// Error: kInvalidArgument for a number with more than 9 decimals.
Result<Nanos> nanos_of(const nlohmann::ordered_json& number);

struct NumberRange {
  Nanos min = -kMaxInteger * kNanosPerUnit;
  Nanos max = kMaxInteger * kNanosPerUnit;
  bool excludes_min = false;
  bool excludes_max = false;
};

// Integers of the range, written without a fraction.
void add_integers(Nfa& nfa, NfaState from, const NumberRange& range, NfaState to);

// Numbers of the range with 0 to 6 decimals.
void add_decimals(Nfa& nfa, NfaState from, const NumberRange& range, NfaState to);

// Integers of any length that `divisor` (1 to 1000) divides; to be cut by another set.
void add_multiples(Nfa& nfa, NfaState from, int divisor, NfaState to);

// Any number, of at most 18 digits before the point, 17 after it, and an exponent of two digits;
// any integer of at most 18 digits.
void add_any_number(Nfa& nfa, NfaState from, NfaState to);
void add_any_integer(Nfa& nfa, NfaState from, NfaState to);

}  // namespace heddle::grammar
