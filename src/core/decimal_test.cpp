// SPDX-License-Identifier: Apache-2.0
#include "core/decimal.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "core/exact_json.h"

namespace heddle {
namespace {

TEST(DecimalTest, NumbersAreOrderedByTheirValueWhateverTheirSpelling) {
  // Each line has the spellings of one number, and is less than the next.
  const std::vector<std::vector<std::string>> kNumbers = {
      {"-1e99999999999999999999", "-1E+99999999999999999999999"},
      {"-1.5e400", "-15e399", "-0.15E401"},
      {"-18446744073709551616"},
      {"-0.5", "-5e-1", "-0.50"},
      {"-1e-400"},
      {"0", "-0", "0.0", "0e9", "-0.00e-5"},
      {"1e-400", "0.1e-399"},
      {"0.099"},
      {"0.1"},
      {"5", "5.0", "50e-1", "0.05e2"},
      {"12"},
      {"123"},
      {"18446744073709551615"},
      {"18446744073709551616", "1.8446744073709551616e19"},
      {"1e400", "10e399", "100000e395"},
      {"1.5e400"},
      {"1e401"}};
  for (size_t i = 0; i < kNumbers.size(); ++i) {
    for (const std::string& left : kNumbers[i]) {
      for (size_t j = 0; j < kNumbers.size(); ++j) {
        for (const std::string& right : kNumbers[j]) {
          EXPECT_EQ(Decimal(left) <=> Decimal(right), i <=> j) << left << " " << right;
          EXPECT_EQ(Decimal(left) == Decimal(right), i == j) << left << " " << right;
        }
      }
    }
  }
}

TEST(DecimalTest, WholeNumbersAreThoseWithoutAFraction) {
  for (const char* const text :
       {"0", "-0.0", "5.0", "1e3", "1.5e1", "1.5e400", "-2.25e2", "18446744073709551616"}) {
    EXPECT_TRUE(Decimal(text).is_whole()) << text;
  }
  for (const char* const text : {"0.5", "1e-1", "1.25e1", "-3e-400", "18446744073709551616.5"}) {
    EXPECT_FALSE(Decimal(text).is_whole()) << text;
    EXPECT_FALSE(Decimal(text).is_multiple_of(1)) << text;
  }
}

TEST(DecimalTest, MultiplesAreThoseOfLongDivision) {
  for (int divisor = 1; divisor <= 1000; ++divisor) {
    for (const int exponent : {0, 1, 2, 3, 7}) {
      int64_t value = -36;
      for (int i = 0; i < exponent; ++i) value *= 10;
      EXPECT_EQ(Decimal(fmt::format("-36e{}", exponent)).is_multiple_of(divisor),
                value % divisor == 0)
          << divisor << " " << exponent;
    }
  }
  EXPECT_TRUE(Decimal("1.5e400").is_multiple_of(1000));
  EXPECT_TRUE(Decimal("1e9223372036854775807").is_multiple_of(64));
  EXPECT_FALSE(Decimal("1e9223372036854775807").is_multiple_of(3));
  EXPECT_TRUE(Decimal("0").is_multiple_of(7));
}

TEST(DecimalTest, ValuesOfTheLibraryAreReadAsTheyAreWritten) {
  for (const std::string_view text : {"7", "-7", "0.5", "1e+300", "18446744073709551616", "1.5e400",
                                      "18446744073709551615", "-9223372036854775808"}) {
    EXPECT_EQ(Decimal::of(parse_exact_json(text).value()), Decimal(text)) << text;
  }
  for (const std::string_view text : {"null", "\"7\"", "[7]", "{}", "true"}) {
    EXPECT_FALSE(Decimal::of(parse_exact_json(text).value())) << text;
  }
}

}  // namespace
}  // namespace heddle
