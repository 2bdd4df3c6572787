// SPDX-License-Identifier: Apache-2.0
#include "ops/sampling/uniform_draw.h"

#include <vector>

#include <gtest/gtest.h>

namespace heddle::ops {
namespace {

TEST(UniformDrawTest, KeepsItsValues) {
  // Computed independently: changing them would change every seeded answer.
  EXPECT_EQ(draw_hash(42, 1000, 3), 6549588781410714447u);
  EXPECT_EQ(draw_hash(0, 0, 0), 2558736989570252433u);
}

TEST(UniformDrawTest, IsUniformAlongEachOfItsInputs) {
  constexpr int kBins = 64;
  constexpr int kDraws = 64000;
  for (int input = 0; input < 3; ++input) {
    std::vector<int> bins(kBins, 0);
    for (int i = 0; i < kDraws; ++i) {
      const double u = uniform_draw(input == 0 ? static_cast<uint64_t>(i) : 5, input == 1 ? i : 9,
                                    input == 2 ? i : 0);
      ASSERT_TRUE(u >= 0 && u < 1);
      ++bins[static_cast<size_t>(u * kBins)];
    }
    double chi_square = 0;
    for (const int count : bins) {
      const double expected = static_cast<double>(kDraws) / kBins;
      chi_square += (count - expected) * (count - expected) / expected;
    }
    EXPECT_LT(chi_square, 110) << "input " << input;  // 63 degrees of freedom: p = 0.0002
    EXPECT_GT(chi_square, 28) << "input " << input;   // nor suspiciously even
  }
}

// A draw of 1 would lie beyond the last token. A draw of 0 never selects a token without weight:
// the cumulated weight has to exceed the target.
TEST(UniformDrawTest, TheLargestDrawStaysBelowTheMass) {
  constexpr uint64_t kLargest = ~uint64_t{2047};  // the 53 bits of a draw, all set
  EXPECT_LT(static_cast<double>(kLargest >> 11) * 0x1p-53, 1.0);
  for (const uint64_t mass : {uint64_t{1}, kUnitWeight, ~uint64_t{0} >> 1, ~uint64_t{0}}) {
    EXPECT_LT(high_product(kLargest, mass), mass);
    EXPECT_EQ(high_product(0, mass), 0u);
  }
}

TEST(UniformDrawTest, TargetsAreTheShareOfTheMassRoundedDown) {
  for (int64_t position = 0; position < 1000; ++position) {
    const uint64_t mass = kUnitWeight + draw_hash(9, position, 1) % (uint64_t{1} << 62);
    const uint64_t target = draw_target(3, position, 0, mass);
    EXPECT_LT(target, mass);
    // 53 bits of the share times up to 63 of the mass: in whole numbers of 128 bits.
    const auto share = static_cast<uint64_t>(uniform_draw(3, position, 0) * 0x1p53);
    const auto want = (static_cast<unsigned __int128>(share) * mass) >> 53;
    EXPECT_EQ(target, static_cast<uint64_t>(want));
  }
  EXPECT_EQ(draw_target(1, 2, 3, 0), 0u);
}

}  // namespace
}  // namespace heddle::ops
