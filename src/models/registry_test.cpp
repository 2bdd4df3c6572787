// SPDX-License-Identifier: Apache-2.0
#include "models/registry.h"

#include <set>

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
       "quant_method is \"unheard_of\""},
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

const json kLatent = {{"kv_lora_rank", 32},          {"qk_nope_head_dim", 16},
                      {"qk_rope_head_dim", 8},       {"v_head_dim", 12},
                      {"moe_intermediate_size", 32}, {"n_routed_experts", 8},
                      {"num_experts_per_tok", 2}};
const json kKimi = {{"num_experts", 8},
                    {"linear_num_heads", 2},
                    {"linear_head_dim", 16},
                    {"num_experts_per_token", 2}};

std::unique_ptr<const Model> model_of(std::string_view architecture, const json& changes) {
  json config = {{"architectures", {architecture}},
                 {"model_type", "any"},
                 {"vocab_size", 320},
                 {"hidden_size", 64},
                 {"intermediate_size", 96},
                 {"num_hidden_layers", 4},
                 {"num_attention_heads", 4}};
  config.update(changes);
  const auto parsed = checkpoint::parse_model_config(config.dump());
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  auto model = create_model(*parsed);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  return std::move(*model);
}

TEST(LatentFamilies, KeepOneRowPerTokenAndLayer) {
  const CacheNeeds deepseek = model_of("DeepseekV3ForCausalLM", kLatent)->cache_needs();
  EXPECT_EQ(deepseek.num_kv_layers, 4);
  EXPECT_EQ(deepseek.num_kv_heads, 1);
  EXPECT_EQ(deepseek.head_dim, 40);
  EXPECT_EQ(deepseek.kv_value_dim, 0);
  EXPECT_THAT(deepseek.kv_windows, ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(deepseek.num_state_layers, 0);
  const CacheNeeds kimi = model_of("KimiLinearForCausalLM", both(kLatent, kKimi))->cache_needs();
  EXPECT_EQ(kimi.num_kv_layers, 1);
  EXPECT_EQ(kimi.head_dim, 40);
  EXPECT_EQ(kimi.kv_value_dim, 0);
  EXPECT_EQ(kimi.num_state_layers, 3);
  EXPECT_EQ(kimi.conv_channels, 3 * 2 * 16);
  EXPECT_EQ(kimi.num_value_heads, 2);
  EXPECT_EQ(kimi.key_dim, 16);
}

TEST(LatentFamilies, NameTheKeyTheyDoNotServe) {
  EXPECT_THAT(
      refusal("DeepseekV3ForCausalLM", "deepseek_v3", both(kLatent, {{"attention_bias", true}}))
          .message(),
      HasSubstr("attention_bias is true; DeepSeek is served without it"));
  EXPECT_THAT(refusal("DeepseekV2ForCausalLM", "deepseek_v2",
                      both(kLatent, {{"quantization_config", {{"quant_method", "unheard_of"}}}}))
                  .message(),
              HasSubstr("quant_method is \"unheard_of\""));
  EXPECT_THAT(refusal("KimiLinearForCausalLM", "kimi_linear",
                      both(both(kLatent, kKimi), {{"hidden_act", "gelu"}}))
                  .message(),
              HasSubstr("hidden_act is \"gelu\""));
}

TEST(LatentFamilies, LeaveTheLayersThatDraftToOthers) {
  const auto model =
      model_of("DeepseekV3ForCausalLM", both(kLatent, {{"num_nextn_predict_layers", 2}}));
  EXPECT_THAT(model->ignored_prefixes(), ElementsAre("model.layers.4.", "model.layers.5."));
}

// Blocks of Kimi-Linear may be stored under either name, and its convolutions apart or as one.
TEST(LatentFamilies, KnowBothSpellingsOfKimiLinearsTensors) {
  std::set<std::string> names;
  const auto model = model_of("KimiLinearForCausalLM", both(kLatent, kKimi));
  for (const checkpoint::WeightSpec& spec : model->weight_specs()) {
    for (const checkpoint::Assembly& assembly : spec.alternatives) {
      for (const checkpoint::HubPiece& piece : assembly) names.insert(piece.tensor.name);
    }
  }
  for (const char* name :
       {"model.layers.0.mlp.gate_proj.weight", "model.layers.0.block_sparse_moe.gate_proj.weight",
        "model.layers.1.block_sparse_moe.experts.7.w1.weight",
        "model.layers.1.mlp.experts.gate_up_proj", "model.layers.1.mlp.gate.weight",
        "model.layers.0.self_attn.k_conv1d.weight", "model.layers.0.self_attn.conv1d.weight",
        "model.layers.0.self_attn.f_a_proj.weight",
        "model.layers.0.self_attn.forget_gate.f_a_proj.weight",
        "model.layers.3.self_attn.kv_a_proj_with_mqa.weight"}) {
    EXPECT_TRUE(names.contains(name)) << name;
  }
}

// DeepSeek-V2 has no published file here; its sizes are in the report (arXiv:2405.04434).
TEST(LatentFamilies, CountTheParametersOfDeepSeekV2) {
  const auto model = model_of("DeepseekV2ForCausalLM", {{"vocab_size", 102400},
                                                        {"hidden_size", 5120},
                                                        {"intermediate_size", 12288},
                                                        {"num_hidden_layers", 60},
                                                        {"num_attention_heads", 128},
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
                                                        {"topk_method", "group_limited_greedy"}});
  int64_t total = 0;
  for (const auto& spec : model->weight_specs()) total += spec.shape.num_elements();
  EXPECT_EQ(total, 235'741'434'880);
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
