// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/dummy_weights.h"

#include <cmath>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::checkpoint {
namespace {

std::vector<float> draw(uint64_t seed, std::string_view name, int64_t first, int64_t count,
                        Initial initial = Initial::kSmall) {
  const DummyWeights weights(seed);
  const StoredWeight weight =
      *weights.find({.name = name, .shape = {first + count}, .initial = initial});
  std::vector<float> values(static_cast<size_t>(count));
  weights.read(weight, first, count, DType::kF32, values.data());
  return values;
}

struct Moments {
  double mean;
  double deviation;
};

Moments moments(const std::vector<float>& values) {
  double sum = 0;
  double squares = 0;
  for (const float value : values) sum += value;
  const double mean = sum / static_cast<double>(values.size());
  for (const float value : values) squares += (value - mean) * (value - mean);
  return {mean, std::sqrt(squares / static_cast<double>(values.size()))};
}

TEST(DummyWeightsTest, DrawsTheSameValuesWhateverPartIsAskedFor) {
  const std::vector<float> whole = draw(1, "w", 0, 10000);
  for (const int64_t first : {0, 1, 2047, 2048, 5000}) {
    const std::vector<float> part = draw(1, "w", first, 3000);
    for (size_t i = 0; i < part.size(); ++i) {
      ASSERT_EQ(part[i], whole[static_cast<size_t>(first) + i]) << first << " + " << i;
    }
  }
}

TEST(DummyWeightsTest, ChangesWithSeedNameAndPosition) {
  const std::vector<float> values = draw(1, "w", 0, 1000);
  EXPECT_NE(values, draw(2, "w", 0, 1000));
  EXPECT_NE(values, draw(1, "v", 0, 1000));
  EXPECT_NE(values, draw(1, "w", int64_t{1} << 32, 1000));
  EXPECT_EQ(values, draw(1, "w", 0, 1000));
}

TEST(DummyWeightsTest, LooksLikeAFreshlyInitialisedModel) {
  const Moments small = moments(draw(3, "w", 0, 1 << 20));
  EXPECT_NEAR(small.mean, 0, 1e-4);  // five standard errors
  EXPECT_NEAR(small.deviation, 0.02, 1e-4);
  const Moments ones = moments(draw(3, "n", 0, 1 << 20, Initial::kAroundOne));
  EXPECT_NEAR(ones.mean, 1, 1e-4);
  EXPECT_NEAR(ones.deviation, 0.02, 1e-4);
  double sum = 0;
  const std::vector<float> decays = draw(3, "A_log", 0, 1 << 16, Initial::kLogDecay);
  for (const float value : decays) {
    ASSERT_TRUE(std::isfinite(value));
    ASSERT_LE(value, std::log(16.0f));
    sum += std::exp(value);
  }
  EXPECT_NEAR(sum / static_cast<double>(decays.size()), 8, 0.1);  // the mean of U(0, 16)
}

TEST(DummyWeightsTest, GivesTheSameModelOnEveryMachine) {
  // Computed once by this code: a change would silently change every benchmark's model.
  const std::vector<float> values = draw(0, "model.embed_tokens.weight", 0, 4);
  const std::vector<float> anchors = {-0.0205195f, -0.0131928f, 0.00821308f, 0.0308215f};
  for (size_t i = 0; i < anchors.size(); ++i) EXPECT_NEAR(values[i], anchors[i], 1e-7);
}

}  // namespace
}  // namespace heddle::checkpoint
