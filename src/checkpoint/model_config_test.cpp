// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/model_config.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/test_files.h"
#include "support/test_data.h"

namespace heddle::checkpoint {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

json small_config() {
  return json::parse(R"({
    "architectures": ["Qwen3NextForCausalLM"], "model_type": "qwen3_next",
    "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "num_experts": 8, "num_experts_per_tok": 3, "moe_intermediate_size": 32,
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "eos_token_id": 2})");
}

Result<ModelConfig> with(std::string_view key, const json& value) {
  json config = small_config();
  config[std::string(key)] = value;
  return parse_model_config(config.dump());
}

TEST(ModelConfigTest, ReadsTheSizesAndFillsInTheFamilysDefaults) {
  const Result<ModelConfig> config = parse_model_config(small_config().dump());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->architecture, "Qwen3NextForCausalLM");
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_THAT(config->layer_kinds,
              ElementsAre(LayerKind::kLinearAttention, LayerKind::kLinearAttention,
                          LayerKind::kLinearAttention, LayerKind::kFullAttention));
  EXPECT_THAT(config->is_moe_layer, ElementsAre(true, true, true, true));
  EXPECT_EQ(config->linear_attention->value_width(), 4 * 128);
  EXPECT_EQ(config->linear_attention->conv_kernel, 4);
  EXPECT_EQ(config->moe->num_experts_per_token, 3);
  EXPECT_EQ(config->moe->shared_intermediate_size, 512);
  EXPECT_TRUE(config->moe->normalize_top_k);
  EXPECT_TRUE(config->attention_output_gate);
  EXPECT_EQ(config->rope.partial_rotary_factor, 0.25);
  EXPECT_EQ(config->intermediate_size, 0);  // no dense layer
  EXPECT_FALSE(config->tie_word_embeddings);
  EXPECT_THAT(config->eos_token_ids, ElementsAre(2));
  EXPECT_FALSE(config->dtype.has_value());
}

TEST(ModelConfigTest, ReadsBothSpellingsOfRope) {
  json old_spelling = small_config();
  old_spelling["rope_theta"] = 500000;
  old_spelling["partial_rotary_factor"] = 0.5;
  old_spelling["rope_scaling"] = {
      {"type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 1024}};
  json new_spelling = small_config();
  new_spelling["rope_theta"] = 1;  // rope_parameters wins
  new_spelling["rope_parameters"] = {{"rope_type", "yarn"},
                                     {"rope_theta", 500000.0},
                                     {"partial_rotary_factor", 0.5},
                                     {"factor", 4},
                                     {"original_max_position_embeddings", 1024.0}};
  for (const json& spelling : {old_spelling, new_spelling}) {
    const Result<ModelConfig> config = parse_model_config(spelling.dump());
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    EXPECT_EQ(config->rope.type, RopeType::kYarn);
    EXPECT_EQ(config->rope.theta, 500000);
    EXPECT_EQ(config->rope.partial_rotary_factor, 0.5);
    EXPECT_EQ(config->rope.factor, 4);
    EXPECT_EQ(config->rope.original_max_position_embeddings, 1024);
  }
}

TEST(ModelConfigTest, LetsLayerTypesOverruleTheInterval) {
  json config = small_config();
  config["full_attention_interval"] = 4;
  config["layer_types"] = {"full_attention", "full_attention", "linear_attention",
                           "full_attention"};
  const Result<ModelConfig> parsed = parse_model_config(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->num_layers_of(LayerKind::kFullAttention), 3);
  EXPECT_EQ(parsed->layer_kinds[2], LayerKind::kLinearAttention);
  EXPECT_EQ(with("full_attention_interval", 2)->num_layers_of(LayerKind::kFullAttention), 2);
}

TEST(ModelConfigTest, KnowsWhichLayersAreDense) {
  json config = small_config();
  config["mlp_only_layers"] = {1};
  config["decoder_sparse_step"] = 2;
  const Result<ModelConfig> parsed = parse_model_config(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_THAT(parsed->is_moe_layer, ElementsAre(false, false, false, true));
  EXPECT_EQ(parsed->intermediate_size, 96);

  const Result<ModelConfig> dense = with("num_experts", 0);
  ASSERT_TRUE(dense.ok()) << dense.status().to_string();
  EXPECT_FALSE(dense->moe.has_value());
  EXPECT_EQ(dense->num_moe_layers(), 0);
}

TEST(ModelConfigTest, CountsNullAsAbsent) {
  json config = small_config();
  config["head_dim"] = nullptr;
  config["num_key_value_heads"] = nullptr;
  config["rope_scaling"] = nullptr;
  config["eos_token_id"] = nullptr;
  const Result<ModelConfig> parsed = parse_model_config(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->head_dim, 16);
  EXPECT_EQ(parsed->num_key_value_heads, 4);
  EXPECT_TRUE(parsed->eos_token_ids.empty());
}

TEST(ModelConfigTest, AcceptsListsOfEosAndBothNamesOfTheDType) {
  EXPECT_THAT(with("eos_token_id", {5, 7})->eos_token_ids, ElementsAre(5, 7));
  EXPECT_EQ(with("torch_dtype", "bfloat16")->dtype, DType::kBf16);
  EXPECT_EQ(with("dtype", "float16")->dtype, DType::kF16);
}

json dense_config(std::string_view model_type) {
  return {{"architectures", {"SomeForCausalLM"}},
          {"model_type", model_type},
          {"vocab_size", 320},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 4},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2}};
}

std::vector<int64_t> windows_of(const json& config) {
  const Result<ModelConfig> parsed = parse_model_config(config.dump());
  EXPECT_TRUE(parsed.ok()) << parsed.status().to_string();
  std::vector<int64_t> windows;
  for (int64_t i = 0; i < parsed->num_layers; ++i) windows.push_back(parsed->window_of(i));
  return windows;
}

TEST(ModelConfigTest, SlidesEveryLayerOfMistralWhereTheWindowIsANumber) {
  json config = dense_config("mistral");
  EXPECT_THAT(windows_of(config), ElementsAre(0, 0, 0, 0));
  config["sliding_window"] = nullptr;
  EXPECT_THAT(windows_of(config), ElementsAre(0, 0, 0, 0));
  config["sliding_window"] = 24;
  EXPECT_THAT(windows_of(config), ElementsAre(24, 24, 24, 24));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "sliding_attention"};
  EXPECT_THAT(windows_of(config), ElementsAre(24, 0, 0, 24));
  config["sliding_window"] = nullptr;
  EXPECT_THAT(parse_model_config(config.dump()).status().message(),
              HasSubstr("sliding_window is missing"));
}

TEST(ModelConfigTest, SlidesLaterLayersOfQwenOnlyWhenAsked) {
  json config = dense_config("qwen2");
  config["sliding_window"] = 24;
  config["max_window_layers"] = 3;
  EXPECT_THAT(windows_of(config), ElementsAre(0, 0, 0, 0));
  config["use_sliding_window"] = true;
  EXPECT_THAT(windows_of(config), ElementsAre(0, 0, 0, 24));
  config["use_sliding_window"] = false;
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "full_attention"};
  EXPECT_THAT(parse_model_config(config.dump()).status().message(),
              HasSubstr("use_sliding_window is false, but layer_types"));
}

TEST(ModelConfigTest, FillsInWhatGptOssLeavesOut) {
  json config = dense_config("gpt_oss");
  config["num_local_experts"] = 4;
  config["num_experts_per_tok"] = 2;
  EXPECT_THAT(windows_of(config), ElementsAre(128, 0, 128, 0));
  Result<ModelConfig> parsed = parse_model_config(config.dump());
  EXPECT_TRUE(parsed->attention_bias);
  EXPECT_EQ(parsed->num_moe_layers(), 4);
  EXPECT_EQ(parsed->moe->num_experts, 4);
  EXPECT_EQ(parsed->moe->intermediate_size, 96);  // intermediate_size is an expert's
  EXPECT_TRUE(parsed->moe->normalize_top_k);
  EXPECT_EQ(parsed->moe->clamped_swiglu->limit, 7.0);
  EXPECT_EQ(parsed->moe->clamped_swiglu->alpha, 1.702);
  config["swiglu_limit"] = 5;
  config["sliding_window"] = 16;
  parsed = parse_model_config(config.dump());
  EXPECT_EQ(parsed->moe->clamped_swiglu->limit, 5.0);
  EXPECT_EQ(parsed->sliding_window, 16);
  config["num_experts_per_tok"] = 5;
  EXPECT_THAT(parse_model_config(config.dump()).status().message(),
              HasSubstr("num_experts_per_tok is 5, more than num_local_experts = 4"));
}

TEST(ModelConfigTest, KnowsBothNamesOfTheNumberOfExperts) {
  json config = dense_config("qwen3_moe");
  config["num_local_experts"] = 8;
  config["num_experts_per_tok"] = 2;
  config["moe_intermediate_size"] = 32;
  const Result<ModelConfig> parsed = parse_model_config(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->moe->num_experts, 8);
  EXPECT_FALSE(parsed->moe->normalize_top_k);  // the family's default
  EXPECT_FALSE(parsed->moe->clamped_swiglu.has_value());
}

TEST(ModelConfigTest, ReadsQwen35InsideAMultimodalConfiguration) {
  json config = {{"architectures", {"Qwen3_5MoeForConditionalGeneration"}},
                 {"model_type", "qwen3_5_moe"},
                 {"tie_word_embeddings", true},
                 {"vision_config", {{"hidden_size", 7}}},
                 {"text_config", small_config()}};
  json& text = config["text_config"];
  text["model_type"] = "qwen3_5_moe_text";
  text["full_attention_interval"] = 2;
  text["norm_topk_prob"] = false;  // not a key of this family: its weights always sum to one
  Result<ModelConfig> parsed = parse_model_config(config.dump());
  ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
  EXPECT_EQ(parsed->architecture, "Qwen3_5MoeForConditionalGeneration");
  EXPECT_EQ(parsed->hidden_size, 64);
  EXPECT_TRUE(parsed->tie_word_embeddings);
  EXPECT_TRUE(parsed->attention_output_gate);
  EXPECT_TRUE(parsed->moe->normalize_top_k);
  EXPECT_EQ(parsed->num_layers_of(LayerKind::kLinearAttention), 2);
  text["layer_types"] = {"linear_attention", "full_attention", "full_attention",
                         "linear_attention"};
  EXPECT_THAT(parse_model_config(config.dump()).status().message(),
              HasSubstr("full_attention_interval is 2, which contradicts layer_types at layer 2"));
}

struct BadValue {
  std::string_view key;
  std::string_view value;  // JSON
  std::string_view message;
};

class BadConfigTest : public ::testing::TestWithParam<BadValue> {};

TEST_P(BadConfigTest, IsOneErrorThatNamesKeyAndValue) {
  const Result<ModelConfig> config = with(GetParam().key, json::parse(GetParam().value));
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.status().message(), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    ModelConfig, BadConfigTest,
    ::testing::Values(
        BadValue{"num_attention_heads", "0", "num_attention_heads is 0, outside 1 to 4096"},
        BadValue{"num_attention_heads", "-4", "num_attention_heads is -4"},
        BadValue{"num_key_value_heads", "0", "num_key_value_heads is 0"},
        BadValue{"num_key_value_heads", "3", "num_key_value_heads is 3, which does not divide"},
        BadValue{"hidden_size", "null", "hidden_size is missing"},
        BadValue{"hidden_size", "\"64\"", "hidden_size is \"64\", not an integer"},
        BadValue{"hidden_size", "64.5", "hidden_size is 64.5, not an integer"},
        BadValue{"hidden_size", "1e300", "not an integer"},
        BadValue{"hidden_size", "18446744073709551615", "not an integer"},
        BadValue{"hidden_size", "9223372036854775807", "outside 1 to 1048576"},
        BadValue{"hidden_size", "[64]", "hidden_size is [64], not an integer"},
        BadValue{"hidden_size", "{}", "hidden_size is an object, not an integer"},
        BadValue{"vocab_size", "0", "vocab_size is 0"},
        BadValue{"num_hidden_layers", "1000000000000", "num_hidden_layers is 1000000000000"},
        BadValue{"head_dim", "0", "head_dim is 0"},
        BadValue{"head_dim", "30", "rotates 7 elements; an even number"},
        BadValue{"linear_num_key_heads", "0", "linear_num_key_heads is 0"},
        BadValue{"linear_num_value_heads", "3", "linear_num_value_heads is 3, not a multiple"},
        BadValue{"linear_conv_kernel_dim", "0", "linear_conv_kernel_dim is 0"},
        BadValue{"rms_norm_eps", "0", "rms_norm_eps is 0, outside"},
        BadValue{"rms_norm_eps", "-1e-6", "rms_norm_eps is -1e-06, outside"},
        BadValue{"rms_norm_eps", "\"NaN\"", "rms_norm_eps is \"NaN\", not a number"},
        BadValue{"num_experts", "-1", "num_experts is -1"},
        BadValue{"num_experts_per_tok", "9", "num_experts_per_tok is 9, more than num_experts = 8"},
        BadValue{"num_experts_per_tok", "0", "num_experts_per_tok is 0"},
        BadValue{"moe_intermediate_size", "0", "moe_intermediate_size is 0"},
        BadValue{"norm_topk_prob", "1", "norm_topk_prob is 1, not true or false"},
        BadValue{"mlp_only_layers", "[4]", "mlp_only_layers is 4, outside 0 to 3"},
        BadValue{"decoder_sparse_step", "0", "decoder_sparse_step is 0"},
        BadValue{"full_attention_interval", "0", "full_attention_interval is 0"},
        BadValue{"layer_types", "[\"full_attention\"]", "layer_types has 1 entries"},
        BadValue{"layer_types", "[1,2,3,4]", "layer_types has 1, not a string"},
        BadValue{"layer_types", R"(["sliding_attention","a","b","c"])",
                 "layer_types has \"a\"; served are"},
        BadValue{"output_gate_type", "\"sigmoid\"", "output_gate_type is \"sigmoid\"; only"},
        BadValue{"hidden_act", "\"gelu\"", "hidden_act is \"gelu\"; only \"silu\""},
        BadValue{"rope_theta", "0", "rope_theta is 0"},
        BadValue{"partial_rotary_factor", "1.5", "partial_rotary_factor is 1.5"},
        BadValue{"rope_scaling", "\"yarn\"", "rope_scaling is \"yarn\", not an object"},
        BadValue{"rope_scaling", R"({"type":"longrope"})", "rope_type is \"longrope\""},
        BadValue{"rope_scaling", R"({"rope_type":"linear"})", "factor is missing"},
        BadValue{"rope_scaling", R"({"rope_type":"linear","factor":0})", "factor is 0"},
        BadValue{"rope_parameters", R"({"full_attention":{"rope_type":"default"}})",
                 "one set per layer type"},
        BadValue{"torch_dtype", "\"float8\"", "dtype \"float8\" is not known"},
        BadValue{"eos_token_id", "320", "eos_token_id is 320, but vocab_size is 320"},
        BadValue{"eos_token_id", "[1,-1]", "eos_token_id is -1"},
        BadValue{"architectures", "[]", "architectures is missing or empty"},
        BadValue{"architectures", "[3]", "architectures has 3, not a string"}));

TEST(ModelConfigTest, PointsAtWhatIsNotJson) {
  for (const std::string_view text : {"", "{", "nonsense", "[]", "{\"a\":1,}"}) {
    EXPECT_EQ(parse_model_config(text).status().code(), StatusCode::kDataLoss) << text;
  }
  // What a Python program writes for a NaN.
  EXPECT_THAT(parse_model_config(R"({"hidden_size": 64, "rms_norm_eps": NaN})").status().message(),
              AllOf(HasSubstr("not valid JSON"), HasSubstr("rms_norm_eps")));
  EXPECT_FALSE(parse_model_config(R"({"rms_norm_eps": 1e999})").ok());
  EXPECT_FALSE(parse_model_config(std::string(100000, '[')).ok());
}

TEST(ModelConfigTest, RefusesAnUnservedArchitectureByNameBeforeItsDetails) {
  const testing::TemporaryFolder folder;
  folder.write("config.json", R"({"architectures":["MambaForCausalLM"],"hidden_act":"strange"})");
  constexpr std::string_view kServed[] = {"Qwen3NextForCausalLM", "OtherForCausalLM"};
  const Status status = load_model_config(folder.path(), kServed).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(),
              HasSubstr("architecture \"MambaForCausalLM\" is not served by this "
                        "build; served are Qwen3NextForCausalLM, OtherForCausalLM"));
  EXPECT_EQ(load_model_config(folder.path() / "none").status().code(), StatusCode::kNotFound);
}

TEST(ModelConfigTest, ReadsTheModelOfTheRepository) {
  const auto folder = heddle::testing::repository_path("models/heddle-tiny");
  if (!std::filesystem::exists(folder / "config.json")) GTEST_SKIP() << "needs " << folder;
  const Result<ModelConfig> config = load_model_config(folder);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->vocab_size, 1536);
  EXPECT_EQ(config->num_layers_of(LayerKind::kFullAttention), 2);
  EXPECT_EQ(config->dtype, DType::kBf16);
  EXPECT_EQ(config->rope.theta, 100000);
  EXPECT_EQ(config->moe->num_experts, 16);
}

TEST(ModelConfigTest, ReadsThePublishedQwen3Next) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/configs/Qwen--Qwen3-Next-80B-A3B-Thinking_config.json");
  std::ifstream file(path);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Result<ModelConfig> config = parse_model_config(text);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_EQ(config->num_layers_of(LayerKind::kLinearAttention), 36);
  EXPECT_EQ(config->num_layers_of(LayerKind::kFullAttention), 12);
  EXPECT_EQ(config->num_moe_layers(), 48);
  EXPECT_EQ(rotary_width(config->rope, config->head_dim), 64);
  EXPECT_EQ(config->moe->num_experts, 512);
  EXPECT_EQ(config->linear_attention->key_width(), 2048);
}

TEST(ModelConfigTest, ReadsEveryHybridModelAtHand) {
  for (const std::string_view name :
       {"golden/qwen3_next", "golden/qwen3_next_mixed_mlp", "golden/qwen3_5", "golden/qwen3_5_moe",
        "models/heddle-tiny", "peers/shapes/tiny", "peers/shapes/mini", "peers/shapes/full80b_4l",
        "peers/shapes/full80b_48l"}) {
    HEDDLE_SHARED_PATH_OR_SKIP(path, name);
    const Result<ModelConfig> config = load_model_config(path);
    ASSERT_TRUE(config.ok()) << config.status().to_string();
    EXPECT_GT(config->num_layers_of(LayerKind::kFullAttention), 0);
    EXPECT_GT(config->num_layers_of(LayerKind::kLinearAttention), 0);
  }
}

TEST(ModelConfigTest, ReadsOrPolitelyRefusesEveryPublishedConfiguration) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/configs");
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const Result<ModelConfig> config = parse_model_config(text);
    if (config.ok()) {
      ++read;
    } else {
      EXPECT_FALSE(config.status().message().empty());
    }
  }
  EXPECT_GE(read, 20);  // Llama, Qwen3, Qwen3-Next, Qwen3.5, ...
}

}  // namespace
}  // namespace heddle::checkpoint
