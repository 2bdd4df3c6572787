// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/value_range.h"

#include <cstdint>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::tools {
namespace {

using ::testing::HasSubstr;

template <typename Number>
std::string error_of(std::string_view text, const ValueRange& range) {
  return parse_number<Number>(text, range).status().message();
}

TEST(ValueRangeTest, NoWholeNumberWrapsOrClamps) {
  EXPECT_EQ(error_of<uint64_t>("-1", ranges::kAny),
            "-1 is not a whole number from 0 to 18446744073709551615");
  EXPECT_THAT(error_of<uint64_t>("18446744073709551616", ranges::kAny), HasSubstr("is not"));
  EXPECT_THAT(error_of<int64_t>("99999999999999999999", ranges::kCountOrNone),
              HasSubstr("from 0 to 9223372036854775807"));
  EXPECT_EQ(error_of<uint16_t>("70000", ranges::kAny),
            "70000 is not a whole number from 0 to 65535");
  EXPECT_THAT(error_of<int32_t>("2147483648", ranges::kAny), HasSubstr("to 2147483647"));
}

TEST(ValueRangeTest, TheEndsOfEveryTypeAreRead) {
  EXPECT_EQ(parse_number<uint64_t>("18446744073709551615", ranges::kAny).value(),
            std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(parse_number<int64_t>("-9223372036854775808", ranges::kAny).value(),
            std::numeric_limits<int64_t>::min());
  EXPECT_EQ(parse_number<int64_t>("9223372036854775807", ranges::kCountOrNone).value(),
            std::numeric_limits<int64_t>::max());
  EXPECT_EQ(parse_number<uint16_t>("65535", ranges::kAny).value(), 65535);
}

TEST(ValueRangeTest, TheWholeTextIsANumberInDecimal) {
  for (const char* text : {"", " 1", "1 ", "1x", "0x10", "1e3", "1.5", "--1", "one"}) {
    EXPECT_FALSE(parse_number<int32_t>(text, ranges::kAny).ok()) << text;
  }
  EXPECT_EQ(parse_number<int32_t>("010", ranges::kAny).value(), 10);
  EXPECT_THAT(error_of<int32_t>("", ranges::kAny), HasSubstr("\"\" is not"));
}

TEST(ValueRangeTest, NanAndTheInfinitiesAreInNoRange) {
  for (const char* text : {"nan", "-nan", "inf", "-inf", "infinity", "1e999"}) {
    for (const ValueRange& range :
         {ranges::kAny, ranges::kSeconds, ranges::kSecondsOrUnlimited, ranges::kShare}) {
      EXPECT_FALSE(parse_number<double>(text, range).ok()) << text;
      EXPECT_FALSE(parse_number<float>(text, range).ok()) << text;
    }
  }
}

TEST(ValueRangeTest, EndsBelongToTheRangeUnlessExcluded) {
  EXPECT_TRUE(parse_number<double>("1", ranges::kShare).ok());
  EXPECT_EQ(error_of<double>("0", ranges::kShare), "0 is not a number above 0 and at most 1");
  EXPECT_EQ(error_of<double>("1.5", ranges::kProbability), "1.5 is not a number from 0 to 1");
  EXPECT_EQ(error_of<double>("-1", ranges::kNotNegative), "-1 is not a number of at least 0");
  EXPECT_EQ(error_of<double>("0", ranges::kPositive), "0 is not a number above 0");
  EXPECT_EQ(error_of<int32_t>("1025", ranges::kThreads),
            "1025 is not a whole number from 0 to 1024");
}

TEST(ValueRangeTest, AValueApartFromTheRangeIsTaken) {
  EXPECT_EQ(parse_number<double>("-1", ranges::kSecondsOrUnlimited).value(), -1);
  EXPECT_THAT(error_of<double>("-2", ranges::kSecondsOrUnlimited),
              HasSubstr("-2 is not -1 or a number from 0 to"));
  EXPECT_EQ(parse_number<double>("0", ranges::kPeriodSeconds).value(), 0);
  EXPECT_FALSE(parse_number<double>("1e-6", ranges::kPeriodSeconds).ok());
  EXPECT_EQ(parse_number<int32_t>("-1", ranges::kTopK).value(), -1);
  EXPECT_EQ(parse_number<int32_t>("0", ranges::kTopK).value(), 0);
  EXPECT_FALSE(parse_number<int32_t>("-2", ranges::kTopK).ok());
}

}  // namespace
}  // namespace heddle::tools
