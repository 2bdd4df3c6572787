// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using checkpoint::ModelConfig;
using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::kF;
using testing::kL;
using testing::parse;

json kimi() { return testing::small_latent_hybrid("KimiLinearForCausalLM"); }

TEST(KimiLinear, IsReadInBothSpellings) {
  const ModelConfig published = parse(kimi());
  json renamed = kimi();
  for (const auto& [from, to] : std::vector<std::pair<const char*, const char*>>{
           {"num_experts", "num_local_experts"},
           {"num_experts_per_token", "num_experts_per_tok"},
           {"num_shared_experts", "n_shared_experts"},
           {"moe_renormalize", "norm_topk_prob"},
           {"num_expert_group", "n_group"}}) {
    renamed[to] = renamed[from];
    renamed.erase(from);
  }
  renamed.erase("linear_attn_config");
  renamed.erase("first_k_dense_replace");
  renamed.update(json::parse(R"({
    "linear_num_heads": 3, "linear_head_dim": 16, "linear_conv_kernel_dim": 4,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention",
      "linear_attention", "linear_attention"],
    "mlp_layer_types": ["dense", "sparse", "sparse", "sparse", "sparse", "sparse"]})"));
  for (const ModelConfig& config : {published, parse(renamed)}) {
    EXPECT_THAT(config.layer_kinds, ElementsAre(kL, kL, kL, kF, kL, kL));
    EXPECT_THAT(config.is_moe_layer, ElementsAre(false, true, true, true, true, true));
    ASSERT_TRUE(config.linear_attention && config.moe && config.latent_attention);
    EXPECT_EQ(config.linear_attention->num_key_heads, 3);
    EXPECT_EQ(config.linear_attention->value_width(), 48);
    EXPECT_EQ(config.moe->num_experts, 8);
    EXPECT_EQ(config.moe->num_experts_per_token, 2);
    EXPECT_EQ(config.moe->shared_intermediate_size, 32);
    EXPECT_TRUE(config.moe->normalize_top_k);
    EXPECT_EQ(config.moe->router->scale, 2.446);
    EXPECT_FALSE(config.latent_attention->rotates);
    EXPECT_EQ(config.max_position_embeddings, 4096);
  }
}

TEST(KimiLinear, KnowsItsLayersWhereTheFileNamesNone) {
  json text = kimi();
  text["linear_attn_config"].erase("kda_layers");
  text["linear_attn_config"].erase("full_attn_layers");
  text.erase("first_k_dense_replace");
  const ModelConfig config = parse(text);
  EXPECT_THAT(config.layer_kinds, ElementsAre(kL, kL, kL, kF, kL, kL));
  EXPECT_THAT(config.is_moe_layer, ElementsAre(false, true, true, true, true, true));
}

TEST(KimiLinear, KeepsRowsAndStates) {
  const CacheNeeds needs = testing::model_of(kimi())->cache_needs();
  EXPECT_EQ(needs.num_kv_layers(), 1);
  EXPECT_EQ(needs.page_groups[0].shape.head_dim, 40);
  EXPECT_EQ(needs.page_groups[0].shape.value_dim, 0);
  EXPECT_EQ(needs.num_state_layers(), 5);
  EXPECT_EQ(needs.state_groups[0].parts[0].shape[1], 3 * 3 * 16);
  EXPECT_EQ(needs.state_groups[0].parts[1].shape, (Shape{3, 16, 16}));
}

// Blocks may be stored under either name, and convolutions apart or as one.
TEST(KimiLinear, KnowsBothSpellingsOfItsTensors) {
  const auto names = testing::hub_names(*testing::model_of(kimi()));
  for (const char* name :
       {"model.layers.0.mlp.gate_proj.weight", "model.layers.0.block_sparse_moe.gate_proj.weight",
        "model.layers.1.block_sparse_moe.experts.7.w1.weight",
        "model.layers.1.mlp.experts.gate_up_proj", "model.layers.1.mlp.gate.weight",
        "model.layers.1.mlp.shared_experts.up_proj.weight",
        "model.layers.0.self_attn.k_conv1d.weight", "model.layers.0.self_attn.conv1d.weight",
        "model.layers.0.self_attn.f_a_proj.weight",
        "model.layers.0.self_attn.forget_gate.f_a_proj.weight",
        "model.layers.3.self_attn.kv_a_proj_with_mqa.weight"}) {
    EXPECT_THAT(names, Contains(name));
  }
}

}  // namespace
}  // namespace heddle::models
