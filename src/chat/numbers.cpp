// SPDX-License-Identifier: Apache-2.0
#include "chat/numbers.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "chat/text_operations.h"

namespace heddle::chat {

namespace {

// 2^63: the smallest double greater than every int64.
constexpr double kTwoTo63 = 9223372036854775808.0;

std::string_view trimmed(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t before = end;
    if (!is_space(previous_code_point(text, before))) break;
    end = before;
  }
  size_t begin = 0;
  while (begin < end) {
    size_t after = begin;
    if (!is_space(next_code_point(text, after))) break;
    begin = after;
  }
  return text.substr(begin, end - begin);
}

// Removes single underscores between digits; nullopt if an underscore is elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      result += text[i];
      continue;
    }
    const auto is_digit = [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; };
    if (i == 0 || i + 1 == text.size() || !is_digit(text[i - 1]) || !is_digit(text[i + 1]))
      return {};
  }
  return result;
}

Status overflow(Arithmetic operation, int64_t a, int64_t b) {
  return invalid_argument(fmt::format("integer overflow: {} {} {} does not fit 64 bits", a,
                                      operator_text(operation), b));
}

Status division_by_zero() { return invalid_argument("division by zero"); }

Result<Value> integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return division_by_zero();
    return Value::floating(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  int64_t factor = base;
  for (int64_t rest = exponent; rest > 0; rest >>= 1) {
    if ((rest & 1) != 0 && __builtin_mul_overflow(result, factor, &result)) {
      return overflow(Arithmetic::kPower, base, exponent);
    }
    if (rest > 1 && __builtin_mul_overflow(factor, factor, &factor)) {
      return overflow(Arithmetic::kPower, base, exponent);
    }
  }
  return Value::integer(result);
}

Result<Value> integer_arithmetic(Arithmetic operation, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (operation) {
    case Arithmetic::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return overflow(operation, a, b);
      return Value::integer(result);
    case Arithmetic::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return overflow(operation, a, b);
      return Value::integer(result);
    case Arithmetic::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return overflow(operation, a, b);
      return Value::integer(result);
    case Arithmetic::kDivide:
      if (b == 0) return division_by_zero();
      // Python divides the integers exactly and rounds only the quotient, so all 64 bits are kept
      // until then.
      return Value::floating(
          static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case Arithmetic::kFloorDivide:
    case Arithmetic::kModulo: {
      if (b == 0) return division_by_zero();
      if (b == -1) {  // the only divisor for which the quotient can overflow
        if (operation == Arithmetic::kModulo) return Value::integer(0);
        if (a == std::numeric_limits<int64_t>::min()) return overflow(operation, a, b);
        return Value::integer(-a);
      }
      const bool rounds_down = a % b != 0 && ((a < 0) != (b < 0));
      if (operation == Arithmetic::kModulo) return Value::integer(a % b + (rounds_down ? b : 0));
      return Value::integer(a / b - (rounds_down ? 1 : 0));
    }
    case Arithmetic::kPower:
      return integer_power(a, b);
  }
  return internal_error("unknown arithmetic operation");
}

Result<Value> float_arithmetic(Arithmetic operation, double a, double b) {
  switch (operation) {
    case Arithmetic::kAdd:
      return Value::floating(a + b);
    case Arithmetic::kSubtract:
      return Value::floating(a - b);
    case Arithmetic::kMultiply:
      return Value::floating(a * b);
    case Arithmetic::kDivide:
      if (b == 0) return division_by_zero();
      return Value::floating(a / b);
    case Arithmetic::kFloorDivide:
    case Arithmetic::kModulo: {
      if (b == 0) return division_by_zero();
      double remainder = std::fmod(a, b);
      double quotient = (a - remainder) / b;
      if (remainder != 0) {
        if ((b < 0) != (remainder < 0)) {
          remainder += b;
          quotient -= 1;
        }
      } else {
        remainder = std::copysign(0.0, b);
      }
      if (operation == Arithmetic::kModulo) return Value::floating(remainder);
      if (quotient == 0) return Value::floating(std::copysign(0.0, a / b));
      const double floor = std::floor(quotient);
      return Value::floating(quotient - floor > 0.5 ? floor + 1 : floor);
    }
    case Arithmetic::kPower: {
      if (a == 0 && b < 0) return division_by_zero();
      if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
        return invalid_argument("a negative number to a fractional power is not a real number");
      }
      const double power = std::pow(a, b);
      if (std::isinf(power) && std::isfinite(a) && std::isfinite(b)) {
        return invalid_argument("the result of ** is too large for a float");
      }
      return Value::floating(power);
    }
  }
  return internal_error("unknown arithmetic operation");
}

// Compares without rounding the integer to a double. Returns 2 for NaN.
int compare_integer_with_double(int64_t a, double b) {
  if (std::isnan(b)) return 2;
  if (b >= kTwoTo63) return -1;
  if (b < -kTwoTo63) return 1;
  const auto whole = static_cast<int64_t>(b);  // rounds toward zero
  if (a != whole) return a < whole ? -1 : 1;
  const double fraction = b - static_cast<double>(whole);
  return fraction > 0 ? -1 : fraction < 0 ? 1 : 0;
}

// Compares two numbers, at least one of which is an int beyond 64 bits.
int compare_big_integers(const Value& a, const Value& b) {
  const auto digits_of = [](const Value& value) -> std::string {
    if (value.is(Kind::kBigInt)) return value.as_digits();
    if (value.is_integral()) return fmt::format_int(value.as_integer()).str();
    // Exact where it matters: a float with a fraction is much smaller than the other number.
    return fmt::format("{:.0f}", value.as_double());
  };
  const auto is_infinite = [](const Value& value) {
    return value.is(Kind::kFloat) && std::isinf(value.as_double());
  };
  if (is_infinite(a)) return a.as_double() < 0 ? -1 : 1;
  if (is_infinite(b)) return b.as_double() < 0 ? 1 : -1;
  const bool has_nan = (a.is(Kind::kFloat) && std::isnan(a.as_double())) ||
                       (b.is(Kind::kFloat) && std::isnan(b.as_double()));
  if (has_nan) return 2;
  const std::string x = digits_of(a);
  const std::string y = digits_of(b);
  const bool is_negative = x.starts_with('-');
  if (is_negative != y.starts_with('-')) return is_negative ? -1 : 1;
  const int order = x.size() != y.size() ? (x.size() < y.size() ? -1 : 1) : x.compare(y);
  const int sign = order < 0 ? -1 : order > 0 ? 1 : 0;
  return is_negative ? -sign : sign;
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  std::array<char, 64> buffer;
  const auto scientific = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                        std::chars_format::scientific);
  const std::string_view text(buffer.data(), static_cast<size_t>(scientific.ptr - buffer.data()));
  int exponent = 0;
  const size_t mark = text.find('e');
  const size_t digits = text[mark + 1] == '+' ? mark + 2 : mark + 1;
  std::from_chars(text.data() + digits, text.data() + text.size(), exponent);
  if (exponent < -4 || exponent >= 16) return std::string(text);
  const auto fixed =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed);
  std::string result(buffer.data(), fixed.ptr);
  if (result.find('.') == std::string::npos) result += ".0";
  return result;
}

std::optional<int64_t> parse_integer(std::string_view text, int base) {
  text = trimmed(text);
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix != 0 && (base == 0 || base == prefix)) {
      base = prefix;
      text.remove_prefix(text[2] == '_' ? 3 : 2);
    }
  }
  if (base == 0) {
    base = 10;
    if (text.size() > 1 && text[0] == '0' &&
        text.find_first_not_of("0_") != std::string_view::npos) {
      return {};
    }
  }
  if (base < 2 || base > 36) return {};
  const std::optional<std::string> digits = without_underscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-') return {};
  const std::string with_sign = (negative ? "-" : "") + *digits;
  int64_t value = 0;
  const char* const end = with_sign.data() + with_sign.size();
  const auto [stop, error] = std::from_chars(with_sign.data(), end, value, base);
  if (error != std::errc() || stop != end) return {};
  return value;
}

std::optional<double> parse_float(std::string_view text) {
  text = trimmed(text);
  const bool negative = !text.empty() && text[0] == '-';
  if (negative || (!text.empty() && text[0] == '+')) text.remove_prefix(1);
  const std::string lower = to_lower(text);
  if (lower == "inf" || lower == "infinity") {
    return negative ? -std::numeric_limits<double>::infinity()
                    : std::numeric_limits<double>::infinity();
  }
  if (lower == "nan") return std::numeric_limits<double>::quiet_NaN();
  if (text.empty() || (text[0] != '.' && (text[0] < '0' || text[0] > '9'))) return {};
  std::optional<std::string> digits = without_underscores(text);
  if (!digits) return {};
  double value = 0;
  const char* const end = digits->data() + digits->size();
  const auto [stop, error] = std::from_chars(digits->data(), end, value);
  if (stop != end || error == std::errc::invalid_argument) return {};
  if (error ==
      std::errc::result_out_of_range) {  // as in Python: too small becomes 0, too large infinite
    const size_t mark = digits->find_first_of("eE");
    const bool tiny =
        mark != std::string::npos && mark + 1 < digits->size() && (*digits)[mark + 1] == '-';
    value = tiny ? 0.0 : std::numeric_limits<double>::infinity();
  }
  return negative ? -value : value;
}

int compare_numbers(const Value& a, const Value& b) {
  if (a.is(Kind::kBigInt) || b.is(Kind::kBigInt)) return compare_big_integers(a, b);
  if (a.is_integral() && b.is_integral()) {
    const int64_t x = a.as_integer();
    const int64_t y = b.as_integer();
    return x < y ? -1 : x > y ? 1 : 0;
  }
  if (a.is_integral()) return compare_integer_with_double(a.as_integer(), b.as_double());
  if (b.is_integral()) {
    const int reversed = compare_integer_with_double(b.as_integer(), a.as_double());
    return reversed == 2 ? 2 : -reversed;
  }
  const double x = a.as_double();
  const double y = b.as_double();
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y ? 1 : 0;
}

Result<int64_t> truncate_to_integer(double value) {
  if (!(value >= -kTwoTo63 && value < kTwoTo63)) {
    return invalid_argument(
        fmt::format("the float {} does not fit a 64-bit integer", float_text(value)));
  }
  return static_cast<int64_t>(value);
}

std::string_view operator_text(Arithmetic operation) {
  switch (operation) {
    case Arithmetic::kAdd:
      return "+";
    case Arithmetic::kSubtract:
      return "-";
    case Arithmetic::kMultiply:
      return "*";
    case Arithmetic::kDivide:
      return "/";
    case Arithmetic::kFloorDivide:
      return "//";
    case Arithmetic::kModulo:
      return "%";
    case Arithmetic::kPower:
      return "**";
  }
  return "?";
}

Result<Value> number_arithmetic(Arithmetic operation, const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return integer_arithmetic(operation, a.as_integer(), b.as_integer());
  }
  return float_arithmetic(operation, a.as_double(), b.as_double());
}

Result<Value> negated_number(const Value& value) {
  if (value.is(Kind::kBigInt)) {
    const std::string& digits = value.as_digits();
    return Value::integer_of(digits.starts_with('-') ? digits.substr(1) : '-' + digits);
  }
  if (!value.is_integral()) return Value::floating(-value.as_double());
  return integer_arithmetic(Arithmetic::kSubtract, 0, value.as_integer());
}

}  // namespace heddle::chat
