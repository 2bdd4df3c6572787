// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/convert.h"

#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::checkpoint {
namespace {

TEST(ConvertTest, WidensEvery16BitPatternAsTheScalarFunctionsDo) {
  std::vector<uint16_t> source(65536);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint16_t>(i);
  std::vector<uint32_t> target(source.size());
  convert_elements(source.data(), DType::kF16, target.data(), DType::kF32, 65536);
  for (size_t i = 0; i < source.size(); ++i) {
    ASSERT_EQ(target[i], std::bit_cast<uint32_t>(to_float(F16{source[i]}))) << "fp16 " << i;
  }
  convert_elements(source.data(), DType::kBf16, target.data(), DType::kF32, 65536);
  for (size_t i = 0; i < source.size(); ++i) {
    ASSERT_EQ(target[i], std::bit_cast<uint32_t>(to_float(Bf16{source[i]}))) << "bf16 " << i;
  }
  std::vector<uint16_t> narrow(source.size());
  convert_elements(source.data(), DType::kF16, narrow.data(), DType::kBf16, 65536);
  for (size_t i = 0; i < source.size(); ++i) {
    ASSERT_EQ(narrow[i], to_bf16(to_float(F16{source[i]})).bits) << "fp16 to bf16 " << i;
  }
  convert_elements(source.data(), DType::kBf16, narrow.data(), DType::kF16, 65536);
  for (size_t i = 0; i < source.size(); ++i) {
    ASSERT_EQ(narrow[i], to_f16(to_float(Bf16{source[i]})).bits) << "bf16 to fp16 " << i;
  }
}

TEST(ConvertTest, NarrowsRandomAndBorderlinePatternsAsTheScalarFunctionsDo) {
  std::mt19937 random(7);
  std::vector<uint32_t> source;
  for (int i = 0; i < 200000; ++i) source.push_back(static_cast<uint32_t>(random()));
  for (const uint32_t center : {0u, 0x33000000u, 0x38800000u, 0x477ff000u, 0x477fe000u, 0x7f800000u,
                                0x7f7fffffu, 0x3f800000u, 0x3f808000u, 0x3f818000u}) {
    for (uint32_t offset = 0; offset < 64; ++offset) {
      source.push_back(center + offset);
      source.push_back(center - offset);
      source.push_back((center + offset) | 0x80000000u);
    }
  }
  std::vector<uint16_t> target(source.size());
  const auto count = static_cast<int64_t>(source.size());
  convert_elements(source.data(), DType::kF32, target.data(), DType::kF16, count);
  for (size_t i = 0; i < source.size(); ++i) {
    ASSERT_EQ(target[i], to_f16(std::bit_cast<float>(source[i])).bits) << std::hex << source[i];
  }
  convert_elements(source.data(), DType::kF32, target.data(), DType::kBf16, count);
  for (size_t i = 0; i < source.size(); ++i) {
    ASSERT_EQ(target[i], to_bf16(std::bit_cast<float>(source[i])).bits) << std::hex << source[i];
  }
}

TEST(ConvertTest, AcceptsUnalignedMemory) {
  std::vector<char> source(1 + 4 * 33);
  std::vector<char> target(1 + 2 * 33);
  for (int i = 0; i < 33; ++i) {
    const auto value = static_cast<float>(i);
    std::memcpy(source.data() + 1 + 4 * i, &value, 4);
  }
  convert_elements(source.data() + 1, DType::kF32, target.data() + 1, DType::kBf16, 33);
  for (int i = 0; i < 33; ++i) {
    Bf16 value;
    std::memcpy(&value, target.data() + 1 + 2 * i, 2);
    EXPECT_EQ(to_float(value), static_cast<float>(i));
  }
}

TEST(ConvertTest, FindsTheFirstElementThatIsNotFinite) {
  for (const float wrong :
       {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
        std::numeric_limits<float>::quiet_NaN()}) {
    for (const int64_t at : {int64_t{0}, int64_t{4095}, int64_t{4096}, int64_t{8191}}) {
      std::vector<float> values(8193, 1);
      values[static_cast<size_t>(at)] = values.back() = wrong;
      for (const DType dtype : {DType::kF32, DType::kBf16, DType::kF16}) {
        std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(dtype, 8193)));
        convert_elements(values.data(), DType::kF32, bytes.data(), dtype, 8193);
        EXPECT_EQ(first_not_finite(bytes.data(), dtype, 8193), at);
        EXPECT_EQ(first_not_finite(bytes.data(), dtype, at), std::nullopt);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::checkpoint
