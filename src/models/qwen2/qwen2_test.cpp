// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::model_of;
using ::testing::Not;
using testing::small_config;

TEST(Qwen2, HasBiasesOnQueriesKeysAndValuesWhateverTheFileSays) {
  for (const json& attention_bias : {json(nullptr), json(false), json(true)}) {
    const auto names = testing::hub_names(
        *model_of(small_config("Qwen2ForCausalLM", {{"attention_bias", attention_bias}})));
    for (const char* projection : {"q_proj", "k_proj", "v_proj"}) {
      EXPECT_THAT(names, Contains(std::string("model.layers.0.self_attn.") + projection + ".bias"));
    }
    EXPECT_THAT(names, Not(Contains("model.layers.0.self_attn.o_proj.bias")));
  }
}

TEST(Qwen2, SlidesInLaterLayersWhenAsked) {
  json config =
      small_config("Qwen2ForCausalLM", {{"sliding_window", 24}, {"max_window_layers", 2}});
  EXPECT_THAT(model_of(config)->cache_needs().windows(), ElementsAre(0, 0, 0, 0));
  config["use_sliding_window"] = true;
  EXPECT_THAT(model_of(config)->cache_needs().windows(), ElementsAre(0, 0, 24, 24));
}

}  // namespace
}  // namespace heddle::models
