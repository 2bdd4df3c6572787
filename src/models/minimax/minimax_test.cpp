// SPDX-License-Identifier: Apache-2.0
// MiniMax-Text's constants: the decays of its heads, which no tensor of a file says.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "models/minimax/lightning_attention.h"

namespace heddle::models {
namespace {

std::vector<float> slopes(int64_t num_heads, int64_t layer, int64_t num_layers) {
  DerivedWeights derived;
  LightningAttention(8, num_heads, 4, layer, num_layers)
      .derive_weights(checkpoint::LoadedWeights(), "self_attn.", derived);
  EXPECT_EQ(derived.size(), 1u);
  EXPECT_EQ(derived[0].first, "self_attn.log_decay");
  std::vector<float> slopes;
  for (const float log_decay : derived[0].second.span<float>()) slopes.push_back(-log_decay);
  return slopes;
}

TEST(LightningAttention, DecaysByHeadAndLayer) {
  EXPECT_FLOAT_EQ(slopes(8, 0, 4)[0], 0.500005f);
  EXPECT_FLOAT_EQ(slopes(8, 0, 4)[7], 0.0039062891f);
  EXPECT_NEAR(slopes(8, 1, 4)[0], 0.3333389f, 1e-7f);
  EXPECT_NEAR(slopes(8, 3, 4)[0], 6.6666611e-06f, 1e-12f)
      << "the last layer forgets nearly nothing";
  EXPECT_NEAR(slopes(64, 0, 80)[1], 0.8409048f, 1e-7f);
  EXPECT_FLOAT_EQ(slopes(64, 0, 80)[63], 0.0039062891f);
  EXPECT_NEAR(slopes(2, 1, 3)[0], 0.03125078f, 1e-8f) << "heads need no power of two";
  EXPECT_EQ(slopes(6, 1, 3).size(), 6u);
}

}  // namespace
}  // namespace heddle::models
