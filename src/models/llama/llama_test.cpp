// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::model_of;
using ::testing::Not;
using testing::refusal;
using testing::small_config;

constexpr std::string_view kLlama = "LlamaForCausalLM";

TEST(Llama, ServesBiasesOfAttentionAndATiedHead) {
  const auto plain = model_of(small_config(kLlama));
  EXPECT_THAT(plain->cache_needs().kv_windows, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(testing::hub_names(*plain), Not(Contains("model.layers.0.self_attn.o_proj.bias")));
  EXPECT_THAT(testing::hub_names(*plain), Contains("lm_head.weight"));
  const auto other = testing::hub_names(
      *model_of(small_config(kLlama, {{"attention_bias", true}, {"tie_word_embeddings", true}})));
  EXPECT_THAT(other, Contains("model.layers.0.self_attn.o_proj.bias"));
  EXPECT_THAT(other, Contains("model.layers.3.self_attn.k_proj.bias"));
  EXPECT_THAT(other, Not(Contains("lm_head.weight")));
}

TEST(Llama, NamesTheKeyItDoesNotServe) {
  const std::vector<std::pair<json, const char*>> cases = {
      {{{"mlp_bias", true}}, "mlp_bias is true; Llama is served without it"},
      {{{"num_experts", 8}}, "num_experts is 8; Llama is served without it"},
      {{{"sliding_window", 24}}, "sliding_window is 24; Llama is served with attention to all"},
      {{{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}}}, "rope_type is \"dynamic\""},
      {{{"rope_scaling", {{"rope_type", "longrope"}}}}, "rope_type is \"longrope\""},
      {{{"hidden_act", "gelu"}}, "hidden_act is \"gelu\"; only \"silu\" is served"},
      {{{"hidden_activation", "gelu"}}, "hidden_activation is \"gelu\"; only \"silu\" is served"},
      {{{"attn_temperature_tuning", true}}, "attn_temperature_tuning is true; Llama is served"},
      {{{"dual_chunk_attention_config", {{"chunk_size", 8192}}}}, "dual_chunk_attention_config"},
      {{{"use_qk_norm", true}}, "use_qk_norm is true; Llama is served without it"},
      {{{"quantization_config", {{"quant_method", "unheard_of"}}}},
       "quant_method is \"unheard_of\""}};
  for (const auto& [changes, message] : cases) {
    const Status status = refusal(small_config(kLlama, changes));
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace heddle::models
