// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::hub_names;
using testing::model_of;
using ::testing::Not;
using testing::parse;

json qwen2_moe_experts(const json& changes = json::object()) {
  json config = testing::small_of("Qwen2MoeForCausalLM");
  config.update(changes);
  return config;
}

TEST(Qwen2Moe, HasAGatedSharedExpertAndKeepsTheWeightsOfTheSoftmax) {
  const checkpoint::ModelConfig config = parse(qwen2_moe_experts());
  ASSERT_TRUE(config.moe.has_value());
  EXPECT_EQ(config.moe->shared_intermediate_size, 80);
  EXPECT_TRUE(config.moe->gated_shared_expert);
  EXPECT_FALSE(config.moe->normalize_top_k);
  EXPECT_TRUE(parse(qwen2_moe_experts({{"norm_topk_prob", true}})).moe->normalize_top_k);
  const auto names = hub_names(*model_of(qwen2_moe_experts()));
  for (const char* name : {"gate.weight", "experts.7.gate_proj.weight",
                           "shared_expert.down_proj.weight", "shared_expert_gate.weight"}) {
    EXPECT_THAT(names, Contains(std::string("model.layers.3.mlp.") + name));
  }
}

TEST(Qwen2Moe, HasBiasesOnQueriesKeysAndValuesUnlessTheFileSaysOtherwise) {
  const std::string bias = "model.layers.0.self_attn.k_proj.bias";
  EXPECT_THAT(hub_names(*model_of(qwen2_moe_experts())), Contains(bias));
  EXPECT_THAT(hub_names(*model_of(qwen2_moe_experts({{"qkv_bias", false}}))), Not(Contains(bias)));
  EXPECT_THAT(hub_names(*model_of(qwen2_moe_experts())),
              Not(Contains("model.layers.0.self_attn.o_proj.bias")));
}

TEST(Qwen2Moe, MayHaveDenseLayersAndLayersThatSlide) {
  EXPECT_THAT(parse(qwen2_moe_experts({{"mlp_only_layers", {0}}})).is_moe_layer,
              ElementsAre(false, true, true, true));
  EXPECT_THAT(parse(qwen2_moe_experts({{"decoder_sparse_step", 2}})).is_moe_layer,
              ElementsAre(false, true, false, true));
  EXPECT_THAT(
      testing::windows_of(qwen2_moe_experts({{"sliding_window", 24}, {"max_window_layers", 2}})),
      ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(
      testing::windows_of(qwen2_moe_experts(
          {{"sliding_window", 24}, {"max_window_layers", 2}, {"use_sliding_window", true}})),
      ElementsAre(0, 0, 24, 24));
}

// Qwen1.5-MoE-A2.7B, as it is published.
TEST(Qwen2Moe, HasThePublishedNumberOfParameters) {
  const auto model = model_of(qwen2_moe_experts({{"vocab_size", 151936},
                                                 {"hidden_size", 2048},
                                                 {"intermediate_size", 5632},
                                                 {"num_hidden_layers", 24},
                                                 {"num_attention_heads", 16},
                                                 {"num_key_value_heads", 16},
                                                 {"num_experts", 60},
                                                 {"num_experts_per_tok", 4},
                                                 {"moe_intermediate_size", 1408},
                                                 {"shared_expert_intermediate_size", 5632}}));
  int64_t total = 0;
  for (const auto& spec : model->weight_specs()) total += spec.shape.num_elements();
  EXPECT_EQ(total, 14'315'784'192);
}

}  // namespace
}  // namespace heddle::models
