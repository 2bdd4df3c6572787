// SPDX-License-Identifier: Apache-2.0
// Python's numbers as far as templates need them: 64-bit integers whose overflow is an error,
// doubles that are printed with the fewest digits that read back exactly, and mixed arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <heddle/status.h>

#include "chat/value.h"

namespace heddle::chat {

// Python's repr(float): "1.0", "1e-05", "1e+16", "inf", "nan".
[[nodiscard]] std::string float_text(double value);

// Python's int(text, base) and float(text). Surrounding spaces, a sign and single underscores
// between digits are accepted; base 0 reads a prefix. None if the text is not a number, or if an
// int does not fit 64 bits.
[[nodiscard]] std::optional<int64_t> parse_integer(std::string_view text, int base);
[[nodiscard]] std::optional<double> parse_float(std::string_view text);

// -1, 0 or 1 if a is less than, equal to or greater than b; exact also between large ints and
// floats. 2 if one is NaN.
[[nodiscard]] int compare_numbers(const Value& a, const Value& b);

// Rounds a float towards zero. Error: it is not finite or does not fit.
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

// `a` and `b` must be numbers. Error: kInvalidArgument on division by zero or integer overflow.
Result<Value> number_arithmetic(Arithmetic operation, const Value& a, const Value& b);
Result<Value> negated_number(const Value& value);

}  // namespace heddle::chat
