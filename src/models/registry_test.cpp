// SPDX-License-Identifier: Apache-2.0
#include "models/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/test_data.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

checkpoint::ModelConfig config_of(const std::filesystem::path& folder) {
  auto config = checkpoint::load_model_config(folder);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return std::move(*config);
}

// A config.json of the smallest sizes, changed by `changes`.
Status refusal(std::string_view architecture, std::string_view model_type, const json& changes) {
  json config = {{"architectures", {architecture}},
                 {"model_type", model_type},
                 {"vocab_size", 320},
                 {"hidden_size", 64},
                 {"intermediate_size", 96},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 4},
                 {"num_key_value_heads", 2}};
  if (!changes.is_null()) config.update(changes);  // {} is null
  const auto parsed = checkpoint::parse_model_config(config.dump());
  if (!parsed.ok()) return parsed.status();
  return create_model(*parsed).status();
}

const json kExperts = {
    {"num_experts", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 32}};
const json kSliding = {
    {"sliding_window", 24}, {"use_sliding_window", true}, {"max_window_layers", 2}};

json both(json a, const json& b) {
  a.update(b);
  return a;
}

TEST(Registry, ListsWhatIsServedForAnUnknownArchitecture) {
  checkpoint::ModelConfig config = config_of(testing::repository_path("models/heddle-tiny"));
  config.architecture = "NoSuchModelForCausalLM";
  const auto model = create_model(config);
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.status().code(), StatusCode::kUnimplemented);
  EXPECT_THAT(model.status().message(), HasSubstr("NoSuchModelForCausalLM"));
  EXPECT_THAT(model.status().message(), HasSubstr("Qwen3NextForCausalLM"));
}

TEST(Qwen3Next, NamesWhatItDoesNotServe) {
  const checkpoint::ModelConfig good = config_of(testing::repository_path("models/heddle-tiny"));
  checkpoint::ModelConfig config = good;
  config.attention_bias = true;
  EXPECT_THAT(create_model(config).status().message(), HasSubstr("attention_bias"));
  config = good;
  config.attention_output_gate = false;
  EXPECT_THAT(create_model(config).status().message(), HasSubstr("attn_output_gate"));
}

TEST(Qwen3Next, KeepsWhatItsLayersNeed) {
  const auto model = create_model(config_of(testing::repository_path("models/heddle-tiny")));
  ASSERT_TRUE(model.ok());
  const CacheNeeds needs = (*model)->cache_needs();
  EXPECT_EQ(needs.num_kv_layers, 2);
  EXPECT_EQ(needs.num_state_layers, 6);
  EXPECT_EQ(needs.conv_channels, 2 * 2 * 128 + 4 * 128);
}

TEST(Families, ServeTheVariationsTheirPublishedModelsHave) {
  const auto served = [](std::string_view architecture, std::string_view model_type,
                         const json& changes) {
    const Status status = refusal(architecture, model_type, changes);
    EXPECT_TRUE(status.ok()) << architecture << ": " << status.to_string();
  };
  served("LlamaForCausalLM", "llama", {{"attention_bias", true}, {"tie_word_embeddings", true}});
  served("MistralForCausalLM", "mistral", {{"sliding_window", 24}});
  served("Qwen2ForCausalLM", "qwen2", kSliding);
  served("Qwen3ForCausalLM", "qwen3", kSliding);
  served("Qwen3MoeForCausalLM", "qwen3_moe", both(kExperts, {{"mlp_only_layers", {0}}}));
  served("GptOssForCausalLM", "gpt_oss", both(kExperts, {{"attention_bias", false}}));
  for (const std::string_view head : {"ForCausalLM", "ForConditionalGeneration"}) {
    served("Qwen3_5" + std::string(head), "qwen3_5", {});
    served("Qwen3_5Moe" + std::string(head), "qwen3_5_moe", kExperts);
  }
}

struct Refused {
  std::string_view architecture;
  std::string_view model_type;
  json changes;
  std::string_view message;
};

TEST(Families, NameTheKeyTheyDoNotServe) {
  const json yarnless = {{"rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2}}}};
  const std::vector<Refused> cases = {
      {"LlamaForCausalLM", "llama", {{"mlp_bias", true}}, "mlp_bias is true; Llama is served"},
      {"LlamaForCausalLM", "llama", kExperts, "num_experts is 8; Llama is served without experts"},
      {"LlamaForCausalLM", "llama", yarnless, "rope type \"dynamic\""},
      {"LlamaForCausalLM", "llama", {{"hidden_act", "gelu"}}, "hidden_act is \"gelu\""},
      {"LlamaForCausalLM", "llama", {{"rope_scaling", {{"rope_type", "longrope"}}}}, "longrope"},
      {"LlamaForCausalLM",
       "llama",
       {{"quantization_config", {{"quant_method", "unheard_of"}}}},
       "quant_method \"unheard_of\""},
      {"MistralForCausalLM",
       "mistral",
       {{"attention_bias", true}},
       "attention_bias is true; Mistral"},
      {"Qwen2ForCausalLM",
       "qwen2",
       {{"full_attention_interval", 4}},
       "\"linear_attention\"; Qwen2"},
      {"Qwen3ForCausalLM", "qwen3", kExperts, "num_experts is 8; Qwen3 is"},
      {"Qwen3MoeForCausalLM", "qwen3_moe", both(kExperts, kSliding),
       "sliding_window is 24; Qwen3-MoE"},
      {"GptOssForCausalLM", "gpt_oss", {}, "0 of 4 layers have experts; gpt-oss is served with"},
      {"Qwen3_5ForCausalLM", "qwen3_5_text", kExperts, "num_experts is 8; Qwen3.5 is"},
      {"Qwen3_5ForCausalLM",
       "qwen3_5_text",
       {{"attn_output_gate", false}},
       "attn_output_gate is false"},
      {"Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", both(kExperts, {{"mlp_only_layers", {0}}}),
       "3 of 4 layers have experts; Qwen3.5-MoE is"}};
  for (const Refused& refused : cases) {
    const Status status = refusal(refused.architecture, refused.model_type, refused.changes);
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << refused.message;
    EXPECT_THAT(status.message(), HasSubstr(refused.message));
  }
}

TEST(Families, NameTheWindowOfEveryLayerThatKeepsKeysAndValues) {
  const auto needs_of = [](std::string_view text) {
    const auto config = checkpoint::parse_model_config(text);
    EXPECT_TRUE(config.ok()) << config.status().to_string();
    const auto model = create_model(*config);
    EXPECT_TRUE(model.ok()) << model.status().to_string();
    return (*model)->cache_needs();
  };
  const CacheNeeds gpt_oss = needs_of(R"({
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 320,
    "hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "sliding_window": 16, "num_local_experts": 4,
    "num_experts_per_tok": 2})");
  EXPECT_EQ(gpt_oss.num_kv_layers, 4);
  EXPECT_EQ(gpt_oss.num_kv_heads, 2);
  EXPECT_EQ(gpt_oss.head_dim, 16);
  EXPECT_THAT(gpt_oss.kv_windows, ElementsAre(16, 0, 16, 0));
  const CacheNeeds qwen3_5 = needs_of(R"({
    "architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "vocab_size": 320,
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 8, "num_attention_heads": 4,
    "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16,
    "linear_value_head_dim": 32})");
  EXPECT_EQ(qwen3_5.num_state_layers, 6);
  EXPECT_EQ(qwen3_5.conv_channels, 2 * 2 * 16 + 6 * 32);
  EXPECT_EQ(qwen3_5.num_value_heads, 6);
  EXPECT_THAT(qwen3_5.kv_windows, ElementsAre(0, 0));
}

TEST(Qwen35, FindsItsLanguageModelInsideAMultimodalCheckpoint) {
  const auto config = checkpoint::parse_model_config(R"({
    "architectures": ["Qwen3_5MoeForConditionalGeneration"], "model_type": "qwen3_5_moe",
    "text_config": {"vocab_size": 320, "hidden_size": 64, "num_hidden_layers": 4,
      "num_attention_heads": 4, "num_experts": 4, "num_experts_per_tok": 2,
      "moe_intermediate_size": 32}})");
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  const auto model = create_model(*config);
  ASSERT_TRUE(model.ok()) << model.status().to_string();
  for (const checkpoint::WeightSpec& spec : (*model)->weight_specs()) {
    for (const checkpoint::Assembly& assembly : spec.alternatives) {
      for (const checkpoint::HubPiece& piece : assembly) {
        EXPECT_THAT(
            piece.tensor.name,
            ::testing::StartsWith(spec.name == "lm_head" ? "lm_head." : "model.language_model."));
      }
    }
  }
  EXPECT_THAT((*model)->ignored_prefixes(), ElementsAre("mtp.", "model.visual.", "visual."));
}

}  // namespace
}  // namespace heddle::models
