// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::model_of;
using testing::small_config;

TEST(Qwen3, NormalisesQueriesAndKeysAndMaySlide) {
  const auto model = model_of(small_config("Qwen3ForCausalLM", {{"attention_bias", true},
                                                                {"use_sliding_window", true},
                                                                {"sliding_window", 24},
                                                                {"max_window_layers", 3}}));
  EXPECT_THAT(model->cache_needs().windows(), ElementsAre(0, 0, 0, 24));
  EXPECT_THAT(testing::hub_names(*model), Contains("model.layers.0.self_attn.q_norm.weight"));
  EXPECT_THAT(testing::hub_names(*model), Contains("model.layers.0.self_attn.o_proj.bias"));
}

}  // namespace
}  // namespace heddle::models
