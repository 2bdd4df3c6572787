// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/same_model.h"

#include <functional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

ModelConfig some_config() {
  ModelConfig config;
  config.architecture = "Qwen3NextForCausalLM";
  config.vocab_size = 100;
  config.hidden_size = 64;
  config.num_layers = 2;
  config.layer_kinds = {LayerKind::kLinearAttention, LayerKind::kFullAttention};
  config.is_moe_layer = {true, true};
  config.linear_attention = LinearAttentionConfig{.num_key_heads = 2};
  config.moe = MoeConfig{.num_experts = 8};
  config.own.set(3);
  return config;
}

TEST(SameModelTest, SettingsThatChangeNothingMayDiffer) {
  ModelConfig other = some_config();
  other.dtype = DType::kBf16;
  other.eos_token_ids = {3};
  other.quantization = QuantizationConfig{};
  EXPECT_TRUE(check_same_model(some_config(), other).ok());
}

TEST(SameModelTest, EverySettingThatShapesTheModelIsCompared) {
  const std::pair<std::function<void(ModelConfig&)>, const char*> changes[] = {
      {[](ModelConfig& c) { c.architecture = "LlamaForCausalLM"; },
       "the architecture is LlamaForCausalLM, and Qwen3NextForCausalLM in use"},
      {[](ModelConfig& c) { c.vocab_size = 101; }, "vocab_size is 101, and 100 in use"},
      {[](ModelConfig& c) { c.hidden_size = 32; }, "hidden_size is 32, and 64 in use"},
      {[](ModelConfig& c) { c.intermediate_size = 1; }, "intermediate_size is 1, and 0 in use"},
      {[](ModelConfig& c) { c.num_layers = 3; }, "num_hidden_layers is 3, and 2 in use"},
      {[](ModelConfig& c) { c.num_attention_heads = 1; }, "num_attention_heads is 1"},
      {[](ModelConfig& c) { c.num_key_value_heads = 1; }, "num_key_value_heads is 1"},
      {[](ModelConfig& c) { c.head_dim = 8; }, "head_dim is 8"},
      {[](ModelConfig& c) { c.max_position_embeddings = 9; }, "max_position_embeddings is 9"},
      {[](ModelConfig& c) { c.rms_norm_eps = 1e-5; }, "rms_norm_eps is 1e-05, and 1e-06 in use"},
      {[](ModelConfig& c) { c.attention_bias = true; }, "attention_bias is true"},
      {[](ModelConfig& c) { c.tie_word_embeddings = true; },
       "tie_word_embeddings is true, and false in use"},
      {[](ModelConfig& c) { c.rope.theta = 5; }, "the settings of rotary embeddings differ"},
      {[](ModelConfig& c) { c.layer_kinds[1] = LayerKind::kSlidingAttention; },
       "the kinds of layers differ"},
      {[](ModelConfig& c) { c.sliding_window = 4; }, "sliding_window is 4"},
      {[](ModelConfig& c) { c.is_moe_layer[0] = false; }, "the layers with experts differ"},
      {[](ModelConfig& c) { c.latent_attention = LatentAttentionConfig{}; },
       "the settings of latent attention differ"},
      {[](ModelConfig& c) { c.linear_attention->conv_kernel = 4; },
       "the settings of linear attention differ"},
      {[](ModelConfig& c) { c.moe->router = RouterConfig{}; }, "the settings of experts differ"},
      {[](ModelConfig& c) { c.own.set(4); }, "the settings of the family differ"},
      {[](ModelConfig& c) { c.own.set(3.0); }, "the settings of the family differ"},
      {[](ModelConfig& c) { c.own = {}; }, "the settings of the family differ"},
      {[](ModelConfig& c) {
         c.quantization = QuantizationConfig{};
         c.quantization->kv_cache = KvCacheScheme::kFp8;
       },
       "the formats of the KV cache differ"},
  };
  for (const auto& [change, message] : changes) {
    ModelConfig other = some_config();
    change(other);
    const Status status = check_same_model(some_config(), other);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace heddle::checkpoint
