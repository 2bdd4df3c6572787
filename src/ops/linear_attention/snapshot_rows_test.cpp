// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/snapshot_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>  // after targets.h, which says what is compiled

#include "ops/simd/targets.h"

namespace heddle::ops {
namespace {

using ::testing::Each;
using ::testing::IsNan;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Storage for some rows in one of the formats, with a canary behind them.
struct Stored {
  Stored(DType format, int64_t num_rows, int64_t row_width)
      : dtype(format),
        rows(num_rows),
        width(row_width),
        bytes(static_cast<size_t>(bytes_of(format, num_rows * row_width)) + 1, 0x5a),
        scales(static_cast<size_t>(num_rows) + 1, -7.0f) {}

  void save(const std::vector<float>& from) {
    encode_snapshot_rows(from.data(), rows, width,
                         {.dtype = dtype, .data = bytes.data(), .scales = scales.data()});
    EXPECT_EQ(bytes.back(), 0x5a);
    EXPECT_EQ(scales.back(), -7.0f);
  }

  std::vector<float> restore() {
    std::vector<float> to(static_cast<size_t>(rows * width) + 1, 777.0f);
    decode_snapshot_rows({.dtype = dtype, .data = bytes.data(), .scales = scales.data()}, rows,
                         width, to.data());
    EXPECT_EQ(to.back(), 777.0f);
    to.pop_back();
    return to;
  }

  [[nodiscard]] int8_t number(int64_t i) const {
    return static_cast<int8_t>(bytes[static_cast<size_t>(i)]);
  }

  DType dtype;
  int64_t rows;
  int64_t width;
  std::vector<uint8_t> bytes;
  std::vector<float> scales;
};

std::vector<float> random_rows(int64_t rows, int64_t width) {
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal;
  std::vector<float> values;
  for (int64_t row = 0; row < rows; ++row) {
    const float size = std::exp(6.0f * normal(random));  // rows differ in magnitude
    for (int64_t i = 0; i < width; ++i) values.push_back(size * normal(random));
  }
  return values;
}

class SnapshotRowsTest : public ::testing::TestWithParam<int64_t> {
 protected:
  void SetUp() override { hwy::SetSupportedTargetsForTest(GetParam()); }

  void TearDown() override { hwy::SetSupportedTargetsForTest(0); }
};

TEST_P(SnapshotRowsTest, KeepsFloatsAsTheyAre) {
  const std::vector<float> values = random_rows(3, 37);
  Stored stored(DType::kF32, 3, 37);
  stored.save(values);
  EXPECT_EQ(stored.restore(), values);
}

TEST_P(SnapshotRowsTest, RoundsToBf16AsTheDefinitionDoes) {
  std::vector<float> values = random_rows(5, 37);
  const float halfway = std::bit_cast<float>(0x3f808000u);  // between two: to the even one
  const float next = std::bit_cast<float>(0x3f818000u);
  const std::vector<float> special = {0.0f, -0.0f,     halfway,    next,
                                      kNaN, kInfinity, -kInfinity, 3.4e38f};
  std::ranges::copy(special, values.begin() + 40);  // within a vector
  std::ranges::copy(special, values.end() - 8);     // at the end, number by number
  Stored stored(DType::kBf16, 5, 37);
  stored.save(values);
  const std::vector<float> restored = stored.restore();
  for (size_t i = 0; i < values.size(); ++i) {
    const float want = to_float(to_bf16(values[i]));
    EXPECT_EQ(std::bit_cast<uint32_t>(restored[i]), std::bit_cast<uint32_t>(want)) << values[i];
  }
}

TEST_P(SnapshotRowsTest, RoundsToInt8WithAScaleForEachRow) {
  for (const int64_t width : {1, 7, 16, 37, 128}) {
    SCOPED_TRACE(fmt::format("width {}", width));
    const std::vector<float> values = random_rows(6, width);
    Stored stored(DType::kI8, 6, width);
    stored.save(values);
    const std::vector<float> restored = stored.restore();
    for (int64_t row = 0; row < 6; ++row) {
      float largest = 0;
      for (int64_t i = row * width; i < (row + 1) * width; ++i) {
        largest = std::max(largest, std::abs(values[static_cast<size_t>(i)]));
      }
      const float scale = stored.scales[static_cast<size_t>(row)];
      ASSERT_EQ(scale, largest / 127.0f);
      for (int64_t i = row * width; i < (row + 1) * width; ++i) {
        const float x = values[static_cast<size_t>(i)];
        // std::nearbyint rounds halves to even, as the default rounding mode has it.
        ASSERT_EQ(stored.number(i), std::nearbyint(x * (127.0f / largest)));
        ASSERT_EQ(restored[static_cast<size_t>(i)], static_cast<float>(stored.number(i)) * scale);
        ASSERT_LE(std::abs(restored[static_cast<size_t>(i)] - x), 0.50001f * scale);
      }
    }
  }
}

TEST_P(SnapshotRowsTest, RoundsHalvesToEven) {
  std::vector<float> values = {127.0f, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -126.5f, -127.0f};
  for (int repeat = 0; repeat < 3; ++repeat)
    values.insert(values.end(), values.begin(), values.begin() + 8);
  Stored stored(DType::kI8, 1, std::ssize(values));
  stored.save(values);
  for (size_t i = 0; i < values.size(); ++i) {
    const int8_t want[] = {127, 0, 2, 2, 0, -2, -126, -127};
    EXPECT_EQ(stored.number(static_cast<int64_t>(i)), want[i % 8]) << values[i];
  }
}

TEST_P(SnapshotRowsTest, HidesNothingThatIsNotFinite) {
  for (const float bad : {kNaN, kInfinity, -kInfinity}) {
    for (const size_t at : {37u, 52u, 73u}) {  // within a vector, and among the last numbers
      std::vector<float> values = random_rows(3, 37);
      values[at] = bad;
      Stored stored(DType::kI8, 3, 37);
      stored.save(values);
      const std::vector<float> restored = stored.restore();
      EXPECT_THAT(std::vector<float>(restored.begin() + 37, restored.begin() + 74), Each(IsNan()));
      for (const size_t i : {0u, 36u, 74u, 110u}) EXPECT_TRUE(std::isfinite(restored[i]));
    }
  }
}

TEST_P(SnapshotRowsTest, MakesZerosOfRowsTooSmallForAScale) {
  for (const float tiny : {0.0f, -0.0f, 1e-40f, 1e-37f}) {
    Stored stored(DType::kI8, 1, 33);
    stored.save(std::vector<float>(33, tiny));
    EXPECT_THAT(stored.restore(), Each(0.0f)) << tiny;
  }
  Stored small(DType::kI8, 1, 33);
  small.save(std::vector<float>(33, 1e-35f));
  EXPECT_THAT(small.restore(), Each(::testing::FloatNear(1e-35f, 1e-40f)));
}

INSTANTIATE_TEST_SUITE_P(EveryTarget, SnapshotRowsTest,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         [](const auto& target) {
                           return std::string(hwy::TargetName(target.param));
                         });

}  // namespace
}  // namespace heddle::ops
