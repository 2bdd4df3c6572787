// SPDX-License-Identifier: Apache-2.0
#include "models/count_prefill_flops.h"

#include <fstream>

#include <gtest/gtest.h>

#include "models/small_config_fixture.h"
#include "support/test_data.h"

namespace heddle::models {
namespace {

using testing::small_config;

request::PrefillFlops flops_of(const nlohmann::json& source) {
  const checkpoint::ModelConfig config = testing::parse(source);
  return count_prefill_flops(config, *create_model(config));
}

// 64 wide, four layers of four heads of 16 channels, two KV heads, an MLP of 96.
constexpr double kSmallLayer = (64 + 2 * 32) * 64 + 64 * 64 + 2 * 96 * 64 + 64 * 96;

TEST(PrefillFlops, CountsTheWeightsThatATokenMeets) {
  const request::PrefillFlops flops = flops_of(small_config("LlamaForCausalLM"));
  EXPECT_EQ(flops.per_token, 2 * 4 * kSmallLayer);
  EXPECT_EQ(flops.per_token, 245'760);
  EXPECT_EQ(flops.per_pair, 4 * 4 * (16 + 16));
  EXPECT_EQ(flops.per_window_pair, 0);
  EXPECT_EQ(flops.window, 0);
  EXPECT_EQ(flops.of(100), 245'760.0 * 100 + 512.0 * 100 * 100);
}

TEST(PrefillFlops, LayersWithAWindowStopGrowingThere) {
  const request::PrefillFlops flops =
      flops_of(small_config("MistralForCausalLM", {{"sliding_window", 24}}));
  EXPECT_EQ(flops.per_token, 2 * 4 * kSmallLayer);
  EXPECT_EQ(flops.per_pair, 0);
  EXPECT_EQ(flops.per_window_pair, 512);
  EXPECT_EQ(flops.window, 24);
  EXPECT_EQ(flops.of(24), flops.per_token * 24 + 512.0 * 24 * 24);
  // Every token beyond the window sees 24 tokens, twice the causal half of a pair each.
  EXPECT_EQ(flops.of(25) - flops.of(24), flops.per_token + 2 * 512.0 * 24);
  EXPECT_EQ(flops.of(1000) - flops.of(999), flops.per_token + 2 * 512.0 * 24);
}

TEST(PrefillFlops, LatentAttentionRunsOverTheRowsThatAreKept) {
  // Six layers of four heads over rows of 32 + 8 channels, of which 32 are values.
  const request::PrefillFlops flops =
      flops_of(testing::small_latent_experts("DeepseekV2ForCausalLM"));
  EXPECT_EQ(flops.per_pair, 6 * 4 * (40 + 32));
}

// Qwen3-Next-80B-A3B: 48 layers, every fourth with attention, ten of 512 experts and a shared one.
TEST(PrefillFlops, OfTheEightyBillionHybridAreThoseOfThreeBillionActiveParameters) {
  const request::PrefillFlops flops =
      flops_of(nlohmann::json{{"architectures", {"Qwen3NextForCausalLM"}},
                              {"vocab_size", 151936},
                              {"hidden_size", 2048},
                              {"intermediate_size", 5120},
                              {"num_hidden_layers", 48},
                              {"num_attention_heads", 16},
                              {"num_key_value_heads", 2},
                              {"head_dim", 256},
                              {"linear_num_key_heads", 16},
                              {"linear_num_value_heads", 32},
                              {"linear_key_head_dim", 128},
                              {"linear_value_head_dim", 128},
                              {"linear_conv_kernel_dim", 4},
                              {"num_experts", 512},
                              {"num_experts_per_tok", 10},
                              {"moe_intermediate_size", 512},
                              {"shared_expert_intermediate_size", 512}});
  // q and gate, k and v; o. q, k, v and z of all heads, b and a; convolution; out.
  constexpr double kAttention = (2 * 4096 + 2 * 512) * 2048.0 + 2048.0 * 4096;
  constexpr double kDeltaNet = (8192 + 4096 + 64) * 2048.0 + 8192 * 4 + 2048.0 * 4096;
  // The shared expert, the router and a gate; ten experts.
  constexpr double kExperts = (1024 + 512 + 1) * 2048.0 + 2048.0 * 512 + 10 * 3 * 512 * 2048.0;
  constexpr double kActive = 12 * kAttention + 36 * kDeltaNet + 48 * kExperts;
  EXPECT_EQ(kActive, 3'252'387'840);
  EXPECT_EQ(flops.per_token, 2 * kActive + 36 * 7 * 32 * 128 * 128.0);
  EXPECT_EQ(flops.per_token, 6'636'896'256);
  EXPECT_EQ(flops.per_pair, 12 * 16 * (256 + 256));
  EXPECT_EQ(flops.per_pair, 98'304);
}

// The table of docs/hybrid-cache.md.
TEST(PrefillFlops, OfPublishedModelsAreThoseOfTheDocuments) {
  const auto config = load_config(heddle::testing::repository_path("models/heddle-tiny"));
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  const request::PrefillFlops tiny = count_prefill_flops(*config, *create_model(*config));
  EXPECT_EQ(tiny.per_token, 2 * 6'232'064.0 + 6 * 7 * 4 * 128 * 128);
  EXPECT_EQ(tiny.per_token, 15'216'640);
  EXPECT_EQ(tiny.per_pair, 2 * 4 * (128 + 128));

  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/configs/openai--gpt-oss-20b_config.json");
  std::ifstream file(path);
  const request::PrefillFlops gpt_oss = flops_of(nlohmann::json::parse(file));
  EXPECT_EQ(gpt_oss.per_token, 6'056'017'920);
  EXPECT_EQ(gpt_oss.per_pair, 98'304);
  EXPECT_EQ(gpt_oss.per_window_pair, 98'304);
  EXPECT_EQ(gpt_oss.window, 128);
}

}  // namespace
}  // namespace heddle::models
