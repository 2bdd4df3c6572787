// SPDX-License-Identifier: Apache-2.0
#include "ops/sampling/token_weight.h"

#include <algorithm>
#include <cmath>
#include <limits>

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

TEST(TokenWeightTest, WhatIsMaskedOrFarFromTheBestWeighsNothing) {
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
