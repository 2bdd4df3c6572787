// SPDX-License-Identifier: Apache-2.0
// Python's numbers as far as templates need them: 64-bit integers whose overflow is an error,
// doubles printed the shortest way that reads back, and arithmetic that mixes both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

// repr(float): "1.0", "1e-05", "1e+16", "inf", "nan".
[[nodiscard]] std::string float_text(double value);

// int(text, base) and float(text): surrounding spaces, a sign and single underscores between digits
// are fine; base 0 reads a prefix. None when the text is not a number or an int does not fit 64
// bits.
[[nodiscard]] std::optional<int64_t> parse_integer(std::string_view text, int base);
[[nodiscard]] std::optional<double> parse_float(std::string_view text);

// -1, 0 or 1 between two numbers, exact also between large ints and floats; 2 when one is NaN.
[[nodiscard]] int compare_numbers(const Value& a, const Value& b);

// The integer nearest to zero from a float. Error: it is not finite or does not fit.
Result<int64_t> truncate_to_integer(double value);

enum class Arithmetic : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};

[[nodiscard]] std::string_view operator_text(Arithmetic operation);

// Both must be numbers. Error: kInvalidArgument on division by zero or integer overflow.
Result<Value> number_arithmetic(Arithmetic operation, const Value& a, const Value& b);
Result<Value> negated_number(const Value& value);

}  // namespace heddle::chat
