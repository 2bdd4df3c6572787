// SPDX-License-Identifier: Apache-2.0
// Decimal: the exact value of a JSON number of any size. 1.5e400 is a whole number, and 1e400 and
// 10e399 are equal, although no number type of the JSON library can hold them.
//
// Threading: thread-compatible; immutable.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace heddle {

class Decimal {
 public:
  // `spelling` must be a JSON number. An exponent beyond 61 bits is replaced by the largest of 61
  // bits.
  explicit Decimal(std::string_view spelling);

  // The number that dump_exact_json() (core/exact_json.h) writes for `value`; nothing if that is
  // not a number.
  static std::optional<Decimal> of(const nlohmann::ordered_json& value);

  [[nodiscard]] bool is_negative() const { return is_negative_; }

  [[nodiscard]] bool is_whole() const { return exponent_ >= 0; }

  // `divisor` must be from 1 to 1000. Cost: O(digits).
  [[nodiscard]] bool is_multiple_of(int divisor) const;

  [[nodiscard]] bool operator==(const Decimal& other) const = default;

  [[nodiscard]] std::strong_ordering operator<=>(const Decimal& other) const;

 private:
  [[nodiscard]] std::strong_ordering compare_magnitude(const Decimal& other) const;

  bool is_negative_ = false;  // the number is below 0
  std::string digits_;        // decimal digits without zeros at either end; empty for 0
  int64_t exponent_ = 0;      // the value is digits * 10^exponent; 0 for 0
};

}  // namespace heddle
