// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <set>
#include <string>

#include <gmock/gmock.h>

#include "models/small_config_fixture.h"
#include "support/test_data.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::kF;
using testing::kL;
using testing::parse;

json hybrid(const json& changes = json::object()) {
  return testing::small_gated_hybrid("Qwen3NextForCausalLM", changes);
}

TEST(Qwen3Next, FillsInItsDefaults) {
  const checkpoint::ModelConfig config = parse(hybrid());
  EXPECT_THAT(config.layer_kinds, ElementsAre(kL, kL, kL, kF));
  EXPECT_THAT(config.is_moe_layer, ElementsAre(true, true, true, true));
  ASSERT_TRUE(config.linear_attention && config.moe);
  EXPECT_EQ(config.linear_attention->value_width(), 4 * 128);
  EXPECT_EQ(config.linear_attention->conv_kernel, 4);
  EXPECT_EQ(config.moe->num_experts_per_token, 3);
  EXPECT_EQ(config.moe->shared_intermediate_size, 512);
  EXPECT_TRUE(config.moe->gated_shared_expert);
  EXPECT_TRUE(config.moe->normalize_top_k);
  EXPECT_EQ(config.rope.partial_rotary_factor, 0.25);
  EXPECT_EQ(config.intermediate_size, 0);  // no dense layer
  json bare = hybrid();
  for (const char* key : {"linear_num_key_heads", "linear_num_value_heads", "num_experts",
                          "num_experts_per_tok", "moe_intermediate_size"}) {
    bare.erase(key);
  }
  const checkpoint::ModelConfig defaults = parse(bare);
  EXPECT_EQ(defaults.moe->num_experts, 512);
  EXPECT_EQ(defaults.moe->num_experts_per_token, 10);
  EXPECT_EQ(defaults.moe->intermediate_size, 512);
  EXPECT_EQ(defaults.linear_attention->num_key_heads, 16);
  EXPECT_EQ(defaults.linear_attention->num_value_heads, 32);
}

TEST(Qwen3Next, LetsLayerTypesOverruleTheInterval) {
  const checkpoint::ModelConfig config =
      parse(hybrid({{"full_attention_interval", 4},
                    {"layer_types",
                     {"full_attention", "full_attention", "linear_attention", "full_attention"}}}));
  EXPECT_THAT(config.layer_kinds, ElementsAre(kF, kF, kL, kF));
  for (const int interval : {2, -2}) {
    EXPECT_THAT(parse(hybrid({{"full_attention_interval", interval}})).layer_kinds,
                ElementsAre(kL, kF, kL, kF));
  }
  EXPECT_THAT(parse(hybrid({{"full_attention_interval", 5000}})).layer_kinds,
              ElementsAre(kL, kL, kL, kL));
}

TEST(Qwen3Next, KnowsWhichLayersAreDense) {
  const checkpoint::ModelConfig config =
      parse(hybrid({{"mlp_only_layers", {1}}, {"decoder_sparse_step", 2}}));
  EXPECT_THAT(config.is_moe_layer, ElementsAre(false, false, false, true));
  EXPECT_EQ(config.intermediate_size, 96);
  // transformers asks only whether a layer is listed.
  const checkpoint::ModelConfig beyond = parse(hybrid({{"mlp_only_layers", {1, 4, -1, 9999999}}}));
  EXPECT_THAT(beyond.is_moe_layer, ElementsAre(true, false, true, true));
  EXPECT_THAT(beyond.notes,
              ElementsAre("config.json: mlp_only_layers has 4, which is none of the 4 "
                          "layers and is not used"));
  EXPECT_EQ(parse(hybrid({{"num_experts", 0}, {"decoder_sparse_step", 0}})).num_moe_layers(), 0);
  const checkpoint::ModelConfig dense = parse(hybrid({{"num_experts", 0}}));
  EXPECT_FALSE(dense.moe.has_value());
  EXPECT_EQ(dense.num_moe_layers(), 0);
}

TEST(Qwen3Next, KeepsWhatItsLayersNeed) {
  const auto config = load_config(heddle::testing::repository_path("models/heddle-tiny"));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->vocab_size, 1536);
  EXPECT_EQ(config->dtype, DType::kBf16);
  EXPECT_EQ(config->rope.theta, 100000);
  EXPECT_EQ(config->moe->num_experts, 16);
  const CacheNeeds needs = create_model(*config)->cache_needs();
  EXPECT_EQ(needs.num_kv_layers(), 2);
  EXPECT_THAT(needs.kv_modules,
              ElementsAre("model.layers.3.self_attn.", "model.layers.7.self_attn."));
  EXPECT_EQ(needs.num_state_layers(), 6);
  EXPECT_EQ(needs.state_groups[0].parts[0].shape[1], 2 * 2 * 128 + 4 * 128);
}

TEST(Qwen3Next, HasAHeadOfOneLayerWithAttention) {
  const auto config = parse(hybrid());
  const auto head = create_prediction_head(config).value();
  EXPECT_EQ(head->cache_needs().num_kv_layers(), 1);
  EXPECT_EQ(head->cache_needs().num_state_layers(), 0);
  EXPECT_THAT(head->cache_needs().kv_modules, ElementsAre("mtp.layers.0.self_attn."));
  EXPECT_THAT(head->hidden_states(), ElementsAre(4)) << "after the final norm";
  std::set<std::string> hub_names;
  for (const auto& spec : head->weight_specs()) {
    EXPECT_TRUE(spec.name.starts_with("draft.")) << spec.name;
    for (const auto& piece : spec.alternatives.front()) hub_names.insert(piece.tensor.name);
  }
  for (const char* name :
       {"mtp.fc.weight", "mtp.pre_fc_norm_embedding.weight", "mtp.pre_fc_norm_hidden.weight",
        "mtp.norm.weight", "mtp.layers.0.input_layernorm.weight",
        "mtp.layers.0.self_attn.q_norm.weight", "mtp.layers.0.mlp.experts.7.up_proj.weight"}) {
    EXPECT_TRUE(hub_names.contains(name)) << name;
  }
}

TEST(Qwen3Next, ReadsThePublishedConfiguration) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/configs/Qwen--Qwen3-Next-80B-A3B-Thinking_config.json");
  std::ifstream file(path);
  const checkpoint::ModelConfig config = parse(json::parse(file));
  EXPECT_EQ(config.num_layers_of(kL), 36);
  EXPECT_EQ(config.num_layers_of(kF), 12);
  EXPECT_EQ(config.num_moe_layers(), 48);
  EXPECT_EQ(rotary_width(config.rope, config.head_dim), 64);
  EXPECT_EQ(config.moe->num_experts, 512);
  EXPECT_EQ(config.linear_attention->key_width(), 2048);
}

}  // namespace
}  // namespace heddle::models
