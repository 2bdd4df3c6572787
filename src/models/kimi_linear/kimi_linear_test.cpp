// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using checkpoint::ModelConfig;
using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kF;
using testing::kL;
using testing::parse;
using testing::refusal;

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
  EXPECT_EQ(needs.num_kv_layers, 1);
  EXPECT_EQ(needs.head_dim, 40);
  EXPECT_EQ(needs.kv_value_dim, 0);
  EXPECT_EQ(needs.num_state_layers, 5);
  EXPECT_EQ(needs.conv_channels, 3 * 3 * 16);
  EXPECT_EQ(needs.num_value_heads, 3);
  EXPECT_EQ(needs.key_dim, 16);
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

struct BadValue {
  std::string_view key;    // or "outer/inner"
  std::string_view value;  // JSON
  std::string_view message;
};

TEST(KimiLinear, NamesWhatIsWrongOrNotServed) {
  const std::vector<BadValue> cases = {
      {"linear_attn_config/kda_layers", "[1, 2, 3, 5]", "has layer 6 in 0 of"},
      {"linear_attn_config/full_attn_layers", "[4, 5]", "has layer 5 in 2 of"},
      {"linear_attn_config/kda_layers", "[0]", "kda_layers is 0, outside 1 to 6"},
      {"linear_attn_config/num_heads", "0", "num_heads is 0"},
      {"linear_attn_config/gate_lower_bound", "-5",
       "gate_lower_bound is -5; Kimi-Linear is served without it"},
      {"linear_attn_config/use_full_rank_gate", "true",
       "use_full_rank_gate is true; Kimi-Linear is served without it"},
      {"mla_use_output_gate", "true",
       "mla_use_output_gate is true; Kimi-Linear is served without it"},
      {"attn_res_block_size", "4", "attn_res_block_size is 4; Kimi-Linear is served without it"},
      {"routed_expert_hidden_size", "64",
       "routed_expert_hidden_size is 64; Kimi-Linear is served without it"},
      {"latent_moe_use_norm", "true",
       "latent_moe_use_norm is true; Kimi-Linear is served without it"},
      {"moe_router_activation_func", "\"softmax\"", "only \"sigmoid\" is served"},
      {"layer_types",
       R"(["full_attention", "linear_attention", "linear_attention", "full_attention",
           "linear_attention", "linear_attention"])",
       "layer_types contradicts linear_attn_config's lists"},
      {"layer_types", "[\"full_attention\"]", "layer_types has 1 entries"},
      {"mlp_layer_types", R"(["sparse", "sparse", "sparse", "sparse", "sparse", "sparse"])",
       "first_k_dense_replace is 1, which contradicts mlp_layer_types"},
      {"mlp_layer_types", R"(["a", "b", "c", "d", "e", "f"])", "mlp_layer_types has \"a\""},
      {"mla_use_nope", "false",
       "mla_use_nope is false; Kimi-Linear is served without positions; set it to true"},
      {"scoring_func", "\"softmax\"", "only \"sigmoid\" is served"},
      {"topk_method", "\"greedy\"", "topk_method is \"greedy\"; only \"noaux_tc\" is served"},
      {"hidden_act", "\"gelu\"", "hidden_act is \"gelu\""},
      {"attention_bias", "true", "attention_bias is true; Kimi-Linear is served without it"},
  };
  for (const BadValue& bad : cases) {
    json config = kimi();
    config[json::json_pointer("/" + std::string(bad.key))] = json::parse(bad.value);
    if (bad.key == "scoring_func") config.erase("moe_router_activation_func");
    EXPECT_THAT(refusal(config).message(), HasSubstr(bad.message));
  }
  json ungrouped = kimi();
  ungrouped.update({{"use_grouped_topk", false}, {"num_expert_group", 2}, {"topk_group", 2}});
  EXPECT_THAT(refusal(ungrouped).message(),
              HasSubstr("use_grouped_topk is false; the 2 groups are always used"));
}

// Switches that are off, and what later relatives write for "not used".
TEST(KimiLinear, TakesSwitchesThatAreOff) {
  json text = kimi();
  text["mla_use_output_gate"] = false;
  text["attn_res_block_size"] = 0;
  text["routed_expert_hidden_size"] = nullptr;
  text["linear_attn_config"]["gate_lower_bound"] = nullptr;
  text["linear_attn_config"]["use_full_rank_gate"] = false;
  EXPECT_TRUE(refusal(text).ok());
}

}  // namespace
}  // namespace heddle::models
