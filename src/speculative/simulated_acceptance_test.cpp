// SPDX-License-Identifier: Apache-2.0
#include "speculative/simulated_acceptance.h"

#include <gtest/gtest.h>

namespace heddle::speculative {
namespace {

// Tokens of a step, on average over many.
double mean_of(const SimulatedAcceptance& acceptance, int64_t num_drafts) {
  constexpr int64_t kSequences = 50, kSteps = 400;
  int64_t tokens = 0;
  for (int64_t sequence = 0; sequence < kSequences; ++sequence) {
    for (int64_t step = 0; step < kSteps; ++step) {
      int64_t kept = 0;
      while (kept < num_drafts && acceptance.holds(sequence, 100 + step, kept)) ++kept;
      tokens += 1 + kept;
    }
  }
  return static_cast<double>(tokens) / (kSequences * kSteps);
}

TEST(SimulatedAcceptanceTest, KeepsTheMeanNumberOfTokens) {
  EXPECT_EQ(mean_of(SimulatedAcceptance(1), 3), 1);
  EXPECT_EQ(mean_of(SimulatedAcceptance(3), 3), 3);
  EXPECT_EQ(mean_of(SimulatedAcceptance(4), 3), 4);
  EXPECT_NEAR(mean_of(SimulatedAcceptance(1.25), 3), 1.25, 0.02);
  EXPECT_NEAR(mean_of(SimulatedAcceptance(2.9), 3), 2.9, 0.02);
}

TEST(SimulatedAcceptanceTest, KeepsNoMoreThanThereAre) {
  EXPECT_EQ(mean_of(SimulatedAcceptance(8), 3), 4);
  EXPECT_EQ(mean_of(SimulatedAcceptance(2.5), 1), 2);
}

TEST(SimulatedAcceptanceTest, DecidesTheSameEachTime) {
  const SimulatedAcceptance acceptance(1.5);
  int held = 0;
  for (int64_t position = 0; position < 100; ++position) {
    const bool holds = acceptance.holds(7, position, 0);
    EXPECT_EQ(acceptance.holds(7, position, 0), holds);
    held += holds ? 1 : 0;
  }
  EXPECT_GT(held, 30);
  EXPECT_LT(held, 70);
}

}  // namespace
}  // namespace heddle::speculative
