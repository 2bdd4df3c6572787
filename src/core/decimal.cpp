// SPDX-License-Identifier: Apache-2.0
#include "core/decimal.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include <nlohmann/json.hpp>

#include "core/exact_json.h"

namespace heddle {
namespace {

constexpr int64_t kMaxExponent = int64_t{1} << 61;

int64_t exponent_of(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  int64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value);
  if (read.ec == std::errc::result_out_of_range) {
    return text.starts_with('-') ? -kMaxExponent : kMaxExponent;
  }
  return std::clamp(value, -kMaxExponent, kMaxExponent);
}

}  // namespace

Decimal::Decimal(std::string_view spelling) {
  is_negative_ = spelling.starts_with('-');
  if (is_negative_) spelling.remove_prefix(1);
  const size_t mantissa_size = std::min(spelling.find_first_of("eE"), spelling.size());
  if (mantissa_size < spelling.size()) exponent_ = exponent_of(spelling.substr(mantissa_size + 1));
  const std::string_view mantissa = spelling.substr(0, mantissa_size);
  const size_t point = std::min(mantissa.find('.'), mantissa.size());
  digits_ = mantissa.substr(0, point);
  if (point < mantissa.size()) {
    digits_ += mantissa.substr(point + 1);
    exponent_ -= static_cast<int64_t>(mantissa.size() - point - 1);
  }
  const size_t end = digits_.find_last_not_of('0') + 1;  // 0 if all digits are zeros
  exponent_ += static_cast<int64_t>(digits_.size() - end);
  digits_.resize(end);
  digits_.erase(0, std::min(digits_.find_first_not_of('0'), digits_.size()));
  if (!digits_.empty()) return;
  is_negative_ = false;
  exponent_ = 0;
}

std::optional<Decimal> Decimal::of(const nlohmann::ordered_json& value) {
  if (const auto wide = wide_number_spelling(value)) return Decimal(*wide);
  if (!value.is_number()) return std::nullopt;
  return Decimal(value.dump());
}

bool Decimal::is_multiple_of(int divisor) const {
  if (!is_whole()) return false;
  int remainder = 0;
  for (const char digit : digits_) remainder = (remainder * 10 + (digit - '0')) % divisor;
  int power = 10 % divisor;  // 10 to the power of 1, 2, 4, 8, ... modulo `divisor`
  for (int64_t left = exponent_; left > 0; left /= 2) {
    if (left % 2 != 0) remainder = remainder * power % divisor;
    power = power * power % divisor;
  }
  return remainder == 0;
}

std::strong_ordering Decimal::operator<=>(const Decimal& other) const {
  if (is_negative_ != other.is_negative_) {
    return is_negative_ ? std::strong_ordering::less : std::strong_ordering::greater;
  }
  return is_negative_ ? other.compare_magnitude(*this) : compare_magnitude(other);
}

std::strong_ordering Decimal::compare_magnitude(const Decimal& other) const {
  if (digits_.empty() || other.digits_.empty()) return other.digits_.empty() <=> digits_.empty();
  const int64_t size = exponent_ + static_cast<int64_t>(digits_.size());
  const int64_t other_size = other.exponent_ + static_cast<int64_t>(other.digits_.size());
  if (size != other_size) return size <=> other_size;
  return digits_ <=> other.digits_;  // digits of equal magnitude compare like strings
}

}  // namespace heddle
