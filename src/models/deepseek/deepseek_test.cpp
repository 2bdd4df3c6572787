// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/deepseek/deepseek_config.h"
#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using checkpoint::ModelConfig;
using nlohmann::json;
using ::testing::Each;
using ::testing::ElementsAre;
using testing::parse;

json deepseek(int version) {
  return testing::small_latent_experts(version == 2 ? "DeepseekV2ForCausalLM"
                                                    : "DeepseekV3ForCausalLM");
}

TEST(DeepSeek, ReadsV3) {
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
  EXPECT_EQ(config.own.get<DeepSeekConfig>().num_nextn_predict_layers, 1);
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

TEST(DeepSeek, ReadsV2WithAndWithoutGroups) {
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

TEST(DeepSeek, MayHaveExpertsInNoLayer) {
  json config = deepseek(3);
  for (const int dense : {6, 7, 1'000'000}) {
    config["first_k_dense_replace"] = dense;
    EXPECT_FALSE(parse(config).moe.has_value());
    EXPECT_EQ(parse(config).intermediate_size, 96);
    EXPECT_EQ(parse(config).notes.size(), dense > 6 ? 1 : 0);
  }
}

// As in Python, and in transformers where it reads the key.
TEST(DeepSeek, CountsLayersByOddNumbers) {
  json config = deepseek(3);
  config["num_nextn_predict_layers"] = -1;
  EXPECT_EQ(parse(config).own.get<DeepSeekConfig>().num_nextn_predict_layers, 0);
  EXPECT_THAT(parse(config).notes,
              ElementsAre("config.json: num_nextn_predict_layers is -1; none is read"));
  config = deepseek(2);
  config["moe_layer_freq"] = 2;
  const std::vector<bool> every_other = parse(config).is_moe_layer;
  config["moe_layer_freq"] = -2;
  EXPECT_EQ(parse(config).is_moe_layer, every_other);
  config["moe_layer_freq"] = 5000;
  EXPECT_EQ(parse(config).num_moe_layers(), 0);
}

TEST(DeepSeek, KeepsOneRowPerTokenAndLayer) {
  const CacheNeeds needs = testing::model_of(deepseek(3))->cache_needs();
  EXPECT_EQ(needs.num_kv_layers(), 6);
  EXPECT_EQ(needs.page_groups[0].shape.num_heads, 1);
  EXPECT_EQ(needs.page_groups[0].shape.head_dim, 40);
  EXPECT_EQ(needs.page_groups[0].shape.value_dim, 0);
  EXPECT_THAT(needs.windows(), Each(0));
  EXPECT_EQ(needs.num_state_layers(), 0);
}

TEST(DeepSeek, LeavesTheLayersThatDraftToOthers) {
  json config = deepseek(3);
  config["num_nextn_predict_layers"] = 2;
  EXPECT_THAT(testing::model_of(config)->ignored_prefixes(),
              ElementsAre("model.layers.6.", "model.layers.7."));
}

// DeepSeek-V2 has no published file here; its sizes are in the report (arXiv:2405.04434).
TEST(DeepSeek, CountsTheParametersOfV2) {
  const auto model = testing::model_of(
      testing::small_config("DeepseekV2ForCausalLM", {{"vocab_size", 102400},
                                                      {"hidden_size", 5120},
                                                      {"intermediate_size", 12288},
                                                      {"num_hidden_layers", 60},
                                                      {"num_attention_heads", 128},
                                                      {"num_key_value_heads", 128},
                                                      {"q_lora_rank", 1536},
                                                      {"kv_lora_rank", 512},
                                                      {"qk_nope_head_dim", 128},
                                                      {"qk_rope_head_dim", 64},
                                                      {"v_head_dim", 128},
                                                      {"moe_intermediate_size", 1536},
                                                      {"n_routed_experts", 160},
                                                      {"n_shared_experts", 2},
                                                      {"num_experts_per_tok", 6},
                                                      {"first_k_dense_replace", 1},
                                                      {"n_group", 8},
                                                      {"topk_group", 3},
                                                      {"topk_method", "group_limited_greedy"}}));
  int64_t total = 0;
  for (const auto& spec : model->weight_specs()) total += spec.shape.num_elements();
  EXPECT_EQ(total, 235'741'434'880);
}

TEST(DeepSeek, ItsHeadIsTheLayerBehindTheOthersOrTheOnlyOne) {
  json published = deepseek(3);
  EXPECT_EQ(create_prediction_head(parse(published)).status().code(), StatusCode::kInvalidArgument);
  published["num_nextn_predict_layers"] = 1;
  const auto head = create_prediction_head(parse(published)).value();
  EXPECT_THAT(head->hidden_states(), ElementsAre(6));
  EXPECT_EQ(head->cache_needs().page_groups[0].shape.num_heads, 1) << "latents";
  for (const auto& spec : head->weight_specs()) {
    ASSERT_EQ(spec.alternatives.size() % 2, 0U) << spec.name;
    const auto name = [&](size_t i) { return spec.alternatives[i].front().tensor.name; };
    EXPECT_TRUE(name(0).starts_with("model.layers.6.")) << name(0);
    EXPECT_TRUE(name(spec.alternatives.size() / 2).starts_with("model.layers.0."));
  }
}

}  // namespace
}  // namespace heddle::models
