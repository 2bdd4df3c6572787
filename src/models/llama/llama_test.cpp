// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using testing::model_of;
using ::testing::Not;
using testing::small_config;

constexpr std::string_view kLlama = "LlamaForCausalLM";

TEST(Llama, ServesBiasesOfAttentionAndATiedHead) {
  const auto plain = model_of(small_config(kLlama));
  EXPECT_THAT(plain->cache_needs().windows(), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(testing::hub_names(*plain), Not(Contains("model.layers.0.self_attn.o_proj.bias")));
  EXPECT_THAT(testing::hub_names(*plain), Contains("lm_head.weight"));
  const auto other = testing::hub_names(
      *model_of(small_config(kLlama, {{"attention_bias", true}, {"tie_word_embeddings", true}})));
  EXPECT_THAT(other, Contains("model.layers.0.self_attn.o_proj.bias"));
  EXPECT_THAT(other, Contains("model.layers.3.self_attn.k_proj.bias"));
  EXPECT_THAT(other, Not(Contains("lm_head.weight")));
}

}  // namespace
}  // namespace heddle::models
