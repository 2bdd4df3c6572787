// SPDX-License-Identifier: Apache-2.0
#include "ops/sampling/token_weight.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace heddle::ops {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

TEST(TokenWeightTest, ExponentialsAreRightToAFewRoundings) {
  double worst = 0;
  for (float z = 0; z > -86; z -= 0.00037f) {
    const double want = std::exp(static_cast<double>(z));
    worst = std::max(worst, std::abs(static_cast<double>(exp_of_negative(z)) / want - 1));
  }
  EXPECT_LT(worst, 3e-7);
  EXPECT_EQ(exp_of_negative(0), 1);
  EXPECT_EQ(exp_of_negative(-0.0f), 1);
  EXPECT_EQ(exp_of_negative(-kInf), exp_of_negative(-86));
}

TEST(TokenWeightTest, RoundsToTheNearestUnitTiesToEven) {
  EXPECT_EQ(fixed_weight(1), kUnitWeight);
  EXPECT_EQ(fixed_weight(0x1p-44f), 1u);
  EXPECT_EQ(fixed_weight(0x1p-45f), 0u);
  EXPECT_EQ(fixed_weight(0x1.000002p-45f), 1u);
  EXPECT_EQ(fixed_weight(0x1.8p-44f), 2u);
  EXPECT_EQ(fixed_weight(0x1.4p-43f), 2u);
  EXPECT_EQ(fixed_weight(0x1.cp-43f), 4u);
}

TEST(TokenWeightTest, ShortSumsRoundEveryWeightAsAlone) {
  std::mt19937 random(6);
  for (int round = 0; round < 5000; ++round) {
    const float deepest = static_cast<float>(random() % 40);
    ShortWeightSum sum;
    uint64_t want = 0;
    for (int i = 0; i < 256; ++i) {
      const float share = static_cast<float>(random() % 1000) / 1000;
      // Every other one a tie between two multiples of 2^-44.
      const float tie = std::ldexp(static_cast<float>(2 * (random() % (1u << 22)) + 1), -45);
      const float exponential = i % 2 == 0 ? exp_of_negative(-deepest * share) : tie;
      sum.add(exponential);
      want += fixed_weight(exponential);
    }
    ASSERT_EQ(sum.total(), want) << "deepest " << deepest;
  }
  ShortWeightSum most;
  for (int i = 0; i < 256; ++i) most.add(1);
  EXPECT_EQ(most.total(), 256 * kUnitWeight);
}

TEST(TokenWeightTest, MaskedAndFarTokensWeighNothing) {
  EXPECT_EQ(token_weight(3, 3, 0.5f), kUnitWeight);
  EXPECT_EQ(token_weight(-kInf, 3, 0.5f), 0u);
  EXPECT_EQ(token_weight(-3e38f, 3e38f, 1), 0u);
  EXPECT_EQ(token_weight(-31.3f, 0, 1), 0u);
  EXPECT_EQ(token_weight(-30.4f, 0, 1), 1u);
  EXPECT_EQ(token_weight(-3e38f, 0, 1 / 3e38f), fixed_weight(exp_of_negative(-1)));
}

TEST(TokenWeightTest, SharesOfAMassAreExact) {
  EXPECT_EQ(share_of_mass(0.5f, 4 * kUnitWeight), 2 * kUnitWeight);
  EXPECT_EQ(share_of_mass(0.75f, 5), 3u);
  EXPECT_EQ(share_of_mass(0.2f, uint64_t{1} << 60),
            static_cast<uint64_t>(static_cast<double>(0.2f) * 0x1p60));
  EXPECT_EQ(share_of_mass(std::nextafter(1.0f, 0.0f), 1000), 999u);
  EXPECT_EQ(share_of_mass(1e-6f, 1000), 0u);
}

}  // namespace
}  // namespace heddle::ops
