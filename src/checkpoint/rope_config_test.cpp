// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/rope_config.h"

#include <cmath>
#include <map>

#include <gtest/gtest.h>

namespace heddle::checkpoint {
namespace {

// The anchors have nine digits; values are rounded to fp32 once.
void expect_frequencies(const RopeConfig& rope, int64_t head_dim,
                        const std::map<size_t, double>& anchors) {
  const RopeFrequencies result = inverse_frequencies(rope, head_dim);
  ASSERT_EQ(static_cast<int64_t>(result.inverse.size()), rotary_width(rope, head_dim) / 2);
  for (const auto& [index, anchor] : anchors) {
    EXPECT_NEAR(result.inverse[index], anchor, anchor * 5e-7) << "i = " << index;
  }
}

TEST(RopeConfigTest, RotatesTheLeadingPartOfEachHead) {
  const RopeConfig rope{.theta = 1e7, .partial_rotary_factor = 0.25};
  EXPECT_EQ(rotary_width(rope, 256), 64);
  expect_frequencies(rope, 256,
                     {{0, 1.0}, {16, std::pow(1e7, -0.5)}, {31, std::pow(1e7, -62.0 / 64)}});
}

TEST(RopeConfigTest, DividesByTheFactorWhenLinear) {
  expect_frequencies({.type = RopeType::kLinear, .factor = 4}, 64, {{0, 0.25}, {16, 0.0025}});
}

TEST(RopeConfigTest, MatchesLlama31) {
  expect_frequencies({.type = RopeType::kLlama3,
                      .theta = 5e5,
                      .factor = 8,
                      .original_max_position_embeddings = 8192,
                      .low_freq_factor = 1,
                      .high_freq_factor = 4},
                     128,
                     {{28, 3.21144599e-3},
                      {29, 2.16657076e-3},
                      {30, 1.37189357e-3},
                      {32, 5.24846161e-4},
                      {34, 1.78507813e-4},
                      {35, 9.55621235e-5},
                      {63, 3.06892599e-7}});
}

TEST(RopeConfigTest, MatchesDeepSeekYarn) {
  RopeConfig rope{.type = RopeType::kYarn,
                  .theta = 1e4,
                  .factor = 40,
                  .original_max_position_embeddings = 4096};
  expect_frequencies(rope, 64,
                     {{10, 5.62341325e-2},
                      {11, 3.90069266e-2},
                      {16, 5.50000000e-3},
                      {22, 1.77827941e-4},
                      {23, 3.33380358e-5},
                      {31, 3.33380358e-6}});
  rope.mscale = 1;
  rope.mscale_all_dim = 1;
  EXPECT_EQ(inverse_frequencies(rope, 64).attention_factor, 1.0f);
}

// The softmax scales of DeepSeek-V3 and V2: 192^-0.5 times what yarn adds.
TEST(RopeConfigTest, MatchesDeepSeeksScoreFactors) {
  RopeConfig rope{.type = RopeType::kYarn, .theta = 1e4, .factor = 40, .mscale_all_dim = 1};
  EXPECT_NEAR(yarn_score_factor(rope) / std::sqrt(192.0), 0.1352337789, 1e-9);
  rope.mscale_all_dim = 0.707;
  EXPECT_NEAR(yarn_score_factor(rope) / std::sqrt(192.0), 0.1147213868, 1e-9);
  rope.mscale_all_dim = 0;
  EXPECT_EQ(yarn_score_factor(rope), 1.0);
  rope = {.type = RopeType::kLinear, .factor = 40, .mscale_all_dim = 1};
  EXPECT_EQ(yarn_score_factor(rope), 1.0);
}

TEST(RopeConfigTest, MatchesQwenYarn) {
  RopeConfig rope{.type = RopeType::kYarn,
                  .theta = 1e6,
                  .factor = 4,
                  .original_max_position_embeddings = 32768};
  const RopeFrequencies result = inverse_frequencies(rope, 128);
  EXPECT_NEAR(result.attention_factor, 1.13862944, 1e-7);
  // The ramp runs from pair 23, which is kept, to pair 40, which is divided by four.
  const auto plain = [](double i) { return std::pow(1e6, -2 * i / 128); };
  EXPECT_NEAR(result.inverse[23] / plain(23), 1, 1e-6);
  EXPECT_LT(result.inverse[24] / plain(24), 0.99);
  EXPECT_GT(result.inverse[39] / plain(39), 0.26);
  EXPECT_NEAR(result.inverse[40] / plain(40), 0.25, 1e-6);
  rope.attention_factor = 2;
  EXPECT_EQ(inverse_frequencies(rope, 128).attention_factor, 2.0f);
}

TEST(RopeConfigTest, MatchesGptOssYarnWhichDoesNotRoundItsRamp) {
  RopeConfig rope{.type = RopeType::kYarn,
                  .theta = 150000,
                  .factor = 32,
                  .original_max_position_embeddings = 4096,
                  .truncate = false};
  expect_frequencies(rope, 64,
                     {{7, 7.37445682e-2},
                      {8, 5.08132748e-2},
                      {9, 3.17056962e-2},
                      {12, 6.79495949e-3},
                      {16, 4.56483919e-4},
                      {17, 1.29318701e-4},
                      {18, 3.83088124e-5},
                      {31, 3.02351143e-7}});
  rope.truncate = true;
  expect_frequencies(rope, 64, {{9, 3.16207523e-2}, {16, 5.80947502e-4}, {8, 5.08132748e-2}});
}

// Gemma 4: 64 of 256 pairs turn, by exponents over the whole width.
TEST(RopeConfigTest, TurnsTheLeadingPairsWhereTheTypeIsProportional) {
  const RopeConfig gemma{
      .type = RopeType::kProportional, .theta = 1e6, .partial_rotary_factor = 0.25};
  expect_frequencies(gemma, 512, {{0, 1.0}, {63, 0.03337625}, {64, 0.0}, {255, 0.0}});
  const RopeConfig half{.type = RopeType::kProportional, .partial_rotary_factor = 0.5};
  expect_frequencies(half, 8, {{0, 1.0}, {1, 0.1}, {2, 0.0}, {3, 0.0}});
}

}  // namespace
}  // namespace heddle::checkpoint
