// SPDX-License-Identifier: Apache-2.0
#include "arrivals.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::tools {
namespace {

using ::testing::ElementsAre;

TEST(Arrivals, UniformOnesHaveEqualGaps) {
  EXPECT_THAT(arrival_times({.kind = ArrivalKind::kUniform, .requests_per_second = 4}, 4),
              ElementsAre(0, 0.25, 0.5, 0.75));
  EXPECT_TRUE(arrival_times({}, 0).empty());
}

TEST(Arrivals, PoissonOnesKeepTheirRateAndSpread) {
  constexpr int64_t kCount = 20'000;
  const auto times = arrival_times({.requests_per_second = 5, .seed = 3}, kCount);
  EXPECT_TRUE(std::ranges::is_sorted(times));
  EXPECT_EQ(times.front(), 0);
  EXPECT_NEAR(times.back() / kCount, 0.2, 0.01);
  int64_t long_gaps = 0;  // exp(-1) of the gaps are longer than their mean
  for (size_t i = 1; i < times.size(); ++i) long_gaps += times[i] - times[i - 1] > 0.2 ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(long_gaps) / kCount, 0.3679, 0.02);
}

TEST(Arrivals, BurstsComeTogetherAtTheSameRate) {
  const auto times = arrival_times(
      {.kind = ArrivalKind::kBurst, .requests_per_second = 10, .burst_size = 4}, 20'000);
  for (size_t i = 0; i < times.size(); ++i) ASSERT_EQ(times[i], times[i / 4 * 4]);
  EXPECT_LT(times[3], times[4]);
  EXPECT_NEAR(times.back() / 20'000, 0.1, 0.01);
}

TEST(Arrivals, ASeedSaysWhichOnes) {
  const auto with_seed = [](uint64_t seed) {
    return arrival_times({.requests_per_second = 2, .seed = seed}, 50);
  };
  EXPECT_EQ(with_seed(7), with_seed(7));
  EXPECT_NE(with_seed(7), with_seed(8));
}

}  // namespace
}  // namespace heddle::tools
