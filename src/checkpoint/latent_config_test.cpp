// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/latent_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace heddle::checkpoint {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr LayerKind kL = LayerKind::kLinearAttention;
constexpr LayerKind kF = LayerKind::kFullAttention;

json shared_keys() {
  return json::parse(R"({
    "vocab_size": 320, "hidden_size": 66, "intermediate_size": 96, "num_hidden_layers": 6,
    "num_attention_heads": 4, "kv_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8,
    "v_head_dim": 12, "moe_intermediate_size": 32, "eos_token_id": 2})");
}

json deepseek(int version) {
  json config = shared_keys();
  config["architectures"] = {fmt::format("DeepseekV{}ForCausalLM", version)};
  config["model_type"] = fmt::format("deepseek_v{}", version);
  config.update(json::parse(R"({
    "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3, "n_group": 4,
    "topk_group": 2, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5})"));
  return config;
}

// As published.
json kimi() {
  json config = shared_keys();
  config["architectures"] = {"KimiLinearForCausalLM"};
  config["model_type"] = "kimi_linear";
  config.update(json::parse(R"({
    "head_dim": 72, "num_experts": 8, "num_shared_experts": 1, "num_experts_per_token": 2,
    "moe_renormalize": true, "num_expert_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "model_max_length": 4096, "mla_use_nope": true,
    "routed_scaling_factor": 2.446, "moe_router_activation_func": "sigmoid",
    "linear_attn_config": {"kda_layers": [1, 2, 3, 5, 6], "full_attn_layers": [4],
      "num_heads": 3, "head_dim": 16, "short_conv_kernel_size": 4}})"));
  return config;
}

ModelConfig parse(const json& config) {
  Result<ModelConfig> parsed = parse_model_config(config.dump());
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  return parsed.ok() ? std::move(*parsed) : ModelConfig{};
}

TEST(LatentConfigTest, ReadsDeepSeekV3) {
  json text = deepseek(3);
  text["q_lora_rank"] = 24;
  text["num_nextn_predict_layers"] = 1;
  const ModelConfig config = parse(text);
  ASSERT_TRUE(config.latent_attention && config.moe && config.moe->router);
  EXPECT_EQ(config.head_dim, 8) << "what positions rotate";
  EXPECT_EQ(config.latent_attention->q_lora_rank, 24);
  EXPECT_EQ(config.latent_attention->kv_lora_rank, 32);
  EXPECT_EQ(config.latent_attention->v_head_dim, 12);
  EXPECT_TRUE(config.latent_attention->rotates);
  EXPECT_TRUE(config.latent_attention->rope_interleave);
  EXPECT_EQ(config.num_nextn_predict_layers, 1);
  EXPECT_THAT(config.is_moe_layer, ElementsAre(false, true, true, true, true, true));
  EXPECT_EQ(config.intermediate_size, 96);
  EXPECT_EQ(config.moe->shared_intermediate_size, 64) << "one expert of both widths";
  EXPECT_TRUE(config.moe->normalize_top_k);
  EXPECT_TRUE(config.moe->router->sigmoid);
  EXPECT_TRUE(config.moe->router->corrected);
  EXPECT_EQ(config.moe->router->num_groups, 4);
  EXPECT_EQ(config.moe->router->groups_kept, 2);
  EXPECT_EQ(config.moe->router->scale, 2.5);
}

TEST(LatentConfigTest, ReadsDeepSeekV2WithAndWithoutGroups) {
  json text = deepseek(2);
  text["q_lora_rank"] = nullptr;
  text["topk_method"] = "group_limited_greedy";
  text["moe_layer_freq"] = 2;
  ModelConfig config = parse(text);
  EXPECT_EQ(config.latent_attention->q_lora_rank, 0);
  EXPECT_THAT(config.is_moe_layer, ElementsAre(false, false, true, false, true, false));
  EXPECT_FALSE(config.moe->router->sigmoid);
  EXPECT_FALSE(config.moe->router->corrected);
  EXPECT_EQ(config.moe->router->num_groups, 4);
  EXPECT_FALSE(config.moe->normalize_top_k);
  EXPECT_EQ(config.moe->router->scale, 2.5);
  text["topk_method"] = "greedy";
  text["norm_topk_prob"] = true;
  config = parse(text);
  EXPECT_EQ(config.moe->router->num_groups, 1) << "whatever n_group says";
  EXPECT_TRUE(config.moe->normalize_top_k);
  EXPECT_EQ(config.moe->router->scale, 1.0) << "the original scales only what it leaves as it is";
  text.erase("n_routed_experts");
  EXPECT_EQ(parse(text).num_moe_layers(), 0);
}

TEST(LatentConfigTest, ReadsKimiLinearInBothSpellings) {
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

TEST(LatentConfigTest, KnowsTheLayersOfAKimiLinearThatNamesNone) {
  json text = kimi();
  text["linear_attn_config"].erase("kda_layers");
  text["linear_attn_config"].erase("full_attn_layers");
  text.erase("first_k_dense_replace");
  const ModelConfig config = parse(text);
  EXPECT_THAT(config.layer_kinds, ElementsAre(kL, kL, kL, kF, kL, kL));
  EXPECT_THAT(config.is_moe_layer, ElementsAre(false, true, true, true, true, true));
}

struct BadValue {
  json base;
  std::string_view key;  // or "outer/inner"
  std::string_view value;
  std::string_view message;
};

TEST(LatentConfigTest, NamesWhatIsWrongOrNotServed) {
  const json v2 = deepseek(2), v3 = deepseek(3);
  const std::vector<BadValue> cases = {
      {v3, "kv_lora_rank", "null", "kv_lora_rank is missing"},
      {v3, "qk_rope_head_dim", "7", "rotates 7 elements"},
      {v3, "n_group", "3", "n_group is 3, which does not divide 8 experts"},
      {v3, "topk_group", "5", "topk_group is 5, more than n_group = 4"},
      {v3, "topk_group", "1", "topk_group is 1, whose groups have fewer than 3 experts"},
      {v3, "num_experts_per_tok", "9", "num_experts_per_tok is 9, more than n_routed_experts = 8"},
      {v3, "topk_method", "\"greedy\"", "topk_method is \"greedy\"; DeepSeek-V3 has"},
      {v3, "scoring_func", "\"softmax\"", "scoring_func is \"softmax\"; DeepSeek-V3 has"},
      {v2, "topk_method", "\"noaux_tc\"", "topk_method is \"noaux_tc\"; served are"},
      {v2, "scoring_func", "\"sigmoid\"", "scoring_func is \"sigmoid\"; DeepSeek-V2 has"},
      {v2, "first_k_dense_replace", "7", "first_k_dense_replace is 7, outside 0 to 6"},
      {kimi(), "linear_attn_config/kda_layers", "[1, 2, 3, 5]", "has layer 6 in 0 of"},
      {kimi(), "linear_attn_config/full_attn_layers", "[4, 5]", "has layer 5 in 2 of"},
      {kimi(), "linear_attn_config/kda_layers", "[0]", "kda_layers is 0, outside 1 to 6"},
      {kimi(), "linear_attn_config/num_heads", "0", "num_heads is 0"},
      {kimi(), "linear_attn_config/gate_lower_bound", "-5", "gate_lower_bound is set"},
      {kimi(), "linear_attn_config/use_full_rank_gate", "true", "use_full_rank_gate is set"},
      {kimi(), "mla_use_output_gate", "true", "mla_use_output_gate is set"},
      {kimi(), "attn_res_block_size", "4", "attn_res_block_size is set"},
      {kimi(), "routed_expert_hidden_size", "64", "routed_expert_hidden_size is set"},
      {kimi(), "latent_moe_use_norm", "true", "latent_moe_use_norm is set"},
      {kimi(), "moe_router_activation_func", "\"softmax\"", "only \"sigmoid\" is served"},
      {kimi(), "layer_types",
       R"(["full_attention", "linear_attention", "linear_attention", "full_attention",
           "linear_attention", "linear_attention"])",
       "layer_types contradicts linear_attn_config's lists"},
      {kimi(), "layer_types", "[\"full_attention\"]", "layer_types has 1 entries"},
      {kimi(), "mlp_layer_types", R"(["sparse", "sparse", "sparse", "sparse", "sparse", "sparse"])",
       "first_k_dense_replace is 1, which contradicts mlp_layer_types"},
      {kimi(), "mlp_layer_types", R"(["a", "b", "c", "d", "e", "f"])", "mlp_layer_types has \"a\""},
  };
  for (const BadValue& bad : cases) {
    json config = bad.base;
    config[json::json_pointer("/" + std::string(bad.key))] = json::parse(bad.value);
    const Result<ModelConfig> parsed = parse_model_config(config.dump());
    ASSERT_FALSE(parsed.ok()) << bad.message;
    EXPECT_THAT(parsed.status().message(), HasSubstr(bad.message));
  }
}

// Switches that are off, and what later relatives write for "not used".
TEST(LatentConfigTest, TakesSwitchesThatAreOff) {
  json text = kimi();
  text["mla_use_output_gate"] = false;
  text["attn_res_block_size"] = 0;
  text["routed_expert_hidden_size"] = nullptr;
  text["linear_attn_config"]["gate_lower_bound"] = nullptr;
  text["linear_attn_config"]["use_full_rank_gate"] = false;
  EXPECT_TRUE(parse_model_config(text.dump()).ok());
}

}  // namespace
}  // namespace heddle::checkpoint
