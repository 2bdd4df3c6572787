// SPDX-License-Identifier: Apache-2.0
// Families that are combinations of the same blocks: the sizes of published models, which a weight
// that is missing or of a wrong shape would change, what a token and a state take in the cache, and
// which layers slide or do not rotate.
#include <cmath>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;
using testing::small_config;
using testing::windows_of;

struct Sizes {
  int64_t vocabulary, hidden, layers, heads, kv_heads, intermediate;
};

struct PublishedModel {
  const char* name;
  std::string_view architecture;
  Sizes sizes;
  json more;
  int64_t parameters;            // 0: not published
  int64_t bytes_per_token;       // of full layers, in bf16
  int64_t window_bytes_per_row;  // of sliding layers
  int64_t state_bytes = 0;       // of a sequence, in fp32
};

std::vector<PublishedModel> published_models() {
  const json glm = {{"attention_bias", true},
                    {"head_dim", 128},
                    {"n_shared_experts", 1},
                    {"num_experts_per_tok", 8},
                    {"num_nextn_predict_layers", 1}};
  json glm_large = glm, glm_air = glm;
  glm_large.update({{"n_routed_experts", 160},
                    {"moe_intermediate_size", 1536},
                    {"first_k_dense_replace", 3},
                    {"use_qk_norm", true}});
  glm_air.update({{"n_routed_experts", 128}, {"moe_intermediate_size", 1408}});
  const json rotation = json::parse(R"({
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
    "sliding_attention": {}})");
  const json gemma4_large = {{"attention_k_eq_v", true},
                             {"num_global_key_value_heads", 4},
                             {"hidden_size_per_layer_input", 0},
                             {"sliding_window", 1024},
                             {"rope_parameters", rotation}};
  json gemma4_small = {
      {"num_kv_shared_layers", 20}, {"rope_parameters", rotation}, {"layer_types", json::array()}};
  json every_sixth = json::array();  // full, and the first
  for (int i = 0; i < 48; ++i) every_sixth.push_back(i > 0 && (i + 1) % 6 != 0 ? 1 : 0);
  for (int i = 0; i < 35; ++i) {
    gemma4_small["layer_types"].push_back((i + 1) % 5 == 0 ? "full_attention"
                                                           : "sliding_attention");
  }
  const json short_convolutions = {{"full_attn_idxs", {2, 5, 8, 10, 12, 14}}};
  const json lfm2_experts = {{"num_experts", 32},
                             {"num_experts_per_tok", 4},
                             {"moe_intermediate_size", 1792},
                             {"full_attn_idxs", {2, 6, 10, 14, 18, 21}}};
  json minimax_text = {{"head_dim", 128},
                       {"num_local_experts", 32},
                       {"rotary_dim", 64},
                       {"attn_type_list", json::array()}};
  for (int i = 0; i < 80; ++i) minimax_text["attn_type_list"].push_back((i + 1) % 8 == 0 ? 1 : 0);
  const json tied = {{"tie_word_embeddings", true}, {"partial_rotary_factor", 0.75}};
  return {
      {"gemma3_1b",
       "Gemma3ForCausalLM",
       {262144, 1152, 26, 4, 1, 6912},
       {{"sliding_window", 512}},
       999'885'952,
       4096,
       22528},
      {"gemma3_4b",
       "Gemma3ForConditionalGeneration",
       {262208, 2560, 34, 8, 4, 10240},
       {},
       3'880'263'168,
       20480,
       118784},
      {"gemma3_12b",
       "Gemma3ForConditionalGeneration",
       {262208, 3840, 48, 16, 8, 15360},
       {},
       11'766'034'176,
       65536,
       327680},
      {"gemma3_27b",
       "Gemma3ForConditionalGeneration",
       {262208, 5376, 62, 32, 16, 21504},
       {{"head_dim", 128}, {"query_pre_attn_scalar", 168}},
       27'009'346'304,
       81920,
       425984},
      {"gemma4_31b",
       "Gemma4ForConditionalGeneration",
       {262144, 5376, 60, 32, 16, 21504},
       gemma4_large,
       30'697'345'340,
       81920,
       819200},
      {"gemma4_e2b",
       "Gemma4ForConditionalGeneration",
       {262144, 1536, 35, 8, 1, 6144},
       gemma4_small,
       0,
       6144,
       12288},
      {"mimo_v2_flash",
       "MiMoV2FlashForCausalLM",
       {152576, 4096, 48, 64, 4, 16384},
       {{"n_routed_experts", 256},
        {"num_experts_per_tok", 8},
        {"moe_intermediate_size", 2048},
        {"hybrid_layer_pattern", every_sixth}},
       308'778'780'864,
       23040,
       199680},
      {"glm_4_5",
       "Glm4MoeForCausalLM",
       {151552, 5120, 92, 96, 8, 12288},
       glm_large,
       352'797'829'024,
       376832,
       0},
      {"glm_4_5_air",
       "Glm4MoeForCausalLM",
       {151552, 4096, 46, 96, 8, 10944},
       glm_air,
       106'852'251'264,
       188416,
       0},
      {"glm_4_7_flash",
       "Glm4MoeLiteForCausalLM",
       {154880, 2048, 47, 20, 20, 10240},
       {{"q_lora_rank", 768},
        {"kv_lora_rank", 512},
        {"qk_nope_head_dim", 192},
        {"qk_rope_head_dim", 64},
        {"v_head_dim", 256},
        {"n_routed_experts", 64},
        {"n_shared_experts", 1},
        {"num_experts_per_tok", 4},
        {"moe_intermediate_size", 1536},
        {"num_nextn_predict_layers", 1}},
       29'943'393'920,
       54144,
       0},
      {"mistral_small_4",
       "Mistral3ForConditionalGeneration",
       {131072, 4096, 36, 32, 32, 12288},
       {{"q_lora_rank", 1024},
        {"kv_lora_rank", 256},
        {"qk_nope_head_dim", 64},
        {"qk_rope_head_dim", 64},
        {"v_head_dim", 128},
        {"n_routed_experts", 128},
        {"n_shared_experts", 1},
        {"num_experts_per_tok", 4},
        {"moe_intermediate_size", 2048}},
       0,
       23040,
       0},
      {"phi_3_mini",
       "Phi3ForCausalLM",
       {32064, 3072, 32, 32, 32, 8192},
       {},
       3'821'079'552,
       393216,
       0},
      {"phi_4_mini",
       "Phi3ForCausalLM",
       {200064, 3072, 32, 24, 8, 8192},
       tied,
       3'836'021'760,
       131072,
       0},
      {"phi_4",
       "Phi3ForCausalLM",
       {100352, 5120, 40, 40, 10, 17920},
       {},
       14'659'507'200,
       204800,
       0},
      {"phi_3_5_moe",
       "PhiMoEForCausalLM",
       {32064, 4096, 32, 32, 8, 6400},
       {{"attention_bias", true},
        {"lm_head_bias", true},
        {"num_local_experts", 16},
        {"num_experts_per_tok", 2}},
       41'873'153'344,
       131072,
       0},
      {"seed_oss_36b",
       "SeedOssForCausalLM",
       {155136, 5120, 64, 80, 8, 27648},
       {{"head_dim", 128}},
       0,
       262144,
       0},
      {"lfm2_1_2b",
       "Lfm2ForCausalLM",
       {65536, 2048, 16, 32, 8, 12288},
       short_convolutions,
       1'170'340'608,
       12288,
       0,
       163840},
      {"lfm2_350m",
       "Lfm2ForCausalLM",
       {65536, 1024, 16, 16, 8, 6656},
       short_convolutions,
       354'483'968,
       12288,
       0,
       81920},
      {"lfm2_8b_a1b",
       "Lfm2MoeForCausalLM",
       {65536, 2048, 24, 32, 8, 7168},
       lfm2_experts,
       8'339'930'560,
       12288,
       0,
       294912},
      {"olmo_hybrid_7b",
       "OlmoHybridForCausalLM",
       {100352, 3840, 32, 30, 30, 11008},
       {},
       7'430'870'688,
       122880,
       0,
       53'084'160 + 2 * 1'658'880},
      {"minimax_text_01",
       "MiniMaxText01ForCausalLM",
       {200064, 6144, 80, 64, 8, 9216},
       minimax_text,
       456'089'655'296,
       40960,
       0,
       293'601'280},
      {"jamba_mini",
       "JambaForCausalLM",
       {65536, 4096, 32, 32, 8, 14336},
       {},
       51'570'323'328,
       16384,
       0,
       14'680'064 + 2 * 1'376'256},
      {"smollm3_3b", "SmolLM3ForCausalLM", {128256, 2048, 36, 16, 4, 11008}, {}, 0, 73728, 0},
      {"ministral3",
       "Ministral3ForCausalLM",
       {131072, 4096, 34, 32, 8, 14336},
       {{"head_dim", 128}},
       0,
       139264,
       0},
      {"ernie_21b",
       "Ernie4_5_MoeForCausalLM",
       {103424, 2560, 28, 20, 4, 12288},
       {{"head_dim", 128}, {"moe_num_experts", 64}, {"moe_k", 6}, {"moe_intermediate_size", 1536}},
       0,
       57344,
       0},
  };
}

class PublishedSizes : public ::testing::TestWithParam<PublishedModel> {};

TEST_P(PublishedSizes, AreThoseOfTheModel) {
  const PublishedModel& p = GetParam();
  const Sizes& s = p.sizes;
  json config = small_config(p.architecture, {{"vocab_size", s.vocabulary},
                                              {"hidden_size", s.hidden},
                                              {"intermediate_size", s.intermediate},
                                              {"num_hidden_layers", s.layers},
                                              {"num_attention_heads", s.heads},
                                              {"num_key_value_heads", s.kv_heads}});
  if (!p.more.is_null()) config.update(p.more);
  const auto model = testing::model_of(config);
  int64_t parameters = 0;
  for (const auto& spec : model->weight_specs()) parameters += spec.shape.num_elements();
  if (p.parameters > 0) {
    EXPECT_EQ(parameters, p.parameters);
  }
  int64_t full = 0, sliding = 0;
  for (const PageGroup& group : model->cache_needs().page_groups) {
    const int64_t row = group.shape.num_heads * (group.shape.head_dim + group.shape.value_width());
    (group.window > 0 ? sliding : full) += 2 * row * group.num_layers;
  }
  EXPECT_EQ(full, p.bytes_per_token);
  EXPECT_EQ(sliding, p.window_bytes_per_row);
  int64_t states = 0;
  for (const StateGroup& group : model->cache_needs().state_groups) {
    for (const StatePart& part : group.parts) {
      states += 4 * part.shape.num_elements() * group.num_layers;
    }
  }
  EXPECT_EQ(states, p.state_bytes);
}

INSTANTIATE_TEST_SUITE_P(All, PublishedSizes, ::testing::ValuesIn(published_models()),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(PlainFamilies, SlideInTheLayersThatTheirPeriodLeaves) {
  EXPECT_THAT(windows_of(small_config("Olmo3ForCausalLM")), ElementsAre(4096, 4096, 4096, 0));
  EXPECT_THAT(windows_of(small_config("Exaone4ForCausalLM", {{"sliding_window", 16}})),
              ElementsAre(16, 16, 16, 0));
  EXPECT_THAT(windows_of(small_config("Exaone4ForCausalLM")), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(windows_of(small_config("Gemma3ForCausalLM",
                                      {{"sliding_window", 16}, {"sliding_window_pattern", 2}})),
              ElementsAre(16, 0, 16, 0));
  EXPECT_THAT(windows_of(small_config("MixtralForCausalLM",
                                      {{"sliding_window", 16}, {"num_local_experts", 4}})),
              ElementsAre(16, 16, 16, 16));
  EXPECT_THAT(windows_of(small_config("Phi3ForCausalLM", {{"sliding_window", 16}})),
              ElementsAre(16, 16, 16, 16));
  EXPECT_THAT(windows_of(small_config("SmolLM3ForCausalLM",
                                      {{"sliding_window", 16}, {"use_sliding_window", true}})),
              ElementsAre(0, 0, 0, 16));
}

// The old spelling has one theta for each kind and a scaling for full layers alone.
TEST(PlainFamilies, RotateSlidingLayersByTheirOwnSettings) {
  const json scaling = {{"rope_type", "linear"}, {"factor", 8}};
  const auto gemma = testing::parse(small_config(
      "Gemma3ForCausalLM", {{"rope_scaling", scaling}, {"rope_local_base_freq", 5000}}));
  EXPECT_EQ(gemma.rope.factor, 8);
  EXPECT_EQ(gemma.rope.theta, 1e6);
  EXPECT_EQ(gemma.sliding_rope, (checkpoint::RopeConfig{.theta = 5000}));
  const auto olmo = testing::parse(
      small_config("Olmo3ForCausalLM", {{"rope_scaling", scaling}, {"rope_theta", 5e5}}));
  EXPECT_EQ(olmo.rope.factor, 8);
  EXPECT_EQ(olmo.sliding_rope, (checkpoint::RopeConfig{.theta = 5e5}));
}

// The published spellings of these families: lists with a number for each layer, and keys with a
// prefix for sliding layers.
TEST(PlainFamilies, ReadTheSettingsOfSlidingLayersFromListsAndPrefixedKeys) {
  json lists = testing::small_of("Step3p5ForCausalLM");
  lists.update({{"rope_theta", {5e6, 2e4, 2e4, 2e4}},
                {"partial_rotary_factors", {0.5, 1.0, 1.0, 1.0}},
                {"rope_scaling", {{"rope_type", "linear"}, {"factor", 4}}},
                // Two more entries, for the layers that predict further tokens.
                {"layer_types",
                 {"full_attention", "sliding_attention", "sliding_attention", "sliding_attention",
                  "sliding_attention", "full_attention"}}});
  const auto step = testing::parse(lists);
  EXPECT_EQ(step.layer_kinds.size(), 4u);
  EXPECT_EQ(step.rope.theta, 5e6);
  EXPECT_EQ(step.rope.partial_rotary_factor, 0.5);
  EXPECT_EQ(step.rope.factor, 4);
  EXPECT_EQ(step.sliding_rope, (checkpoint::RopeConfig{.theta = 2e4}));

  json prefixed = testing::small_of("MiMoV2FlashForCausalLM");
  prefixed.update({{"rope_theta", 3e6},
                   {"swa_rope_theta", 2e4},
                   {"partial_rotary_factor", 0.5},
                   {"hybrid_layer_pattern", {1, 0, 1, 1}},
                   {"moe_layer_freq", {0, 1, 0, 1}}});
  const auto mimo = testing::parse(prefixed);
  EXPECT_EQ(mimo.rope.theta, 3e6);
  EXPECT_EQ(mimo.rope.partial_rotary_factor, 0.5);
  EXPECT_EQ(mimo.sliding_rope,
            (checkpoint::RopeConfig{.theta = 2e4, .partial_rotary_factor = 0.5}));
  EXPECT_THAT(windows_of(prefixed), ElementsAre(128, 0, 128, 128));
  EXPECT_THAT(mimo.is_moe_layer, ElementsAre(false, true, false, true));
}

// The last layers read the pages of the last layer of their kind that has some.
TEST(PlainFamilies, ReadThePagesOfEarlierLayers) {
  json config = testing::small_of("Gemma4ForCausalLM");
  config["num_kv_shared_layers"] = 2;
  const auto model = testing::model_of(config);
  EXPECT_THAT(model->cache_needs().windows(), ElementsAre(16, 0));
  const auto names = testing::hub_names(*model);
  EXPECT_THAT(names, Contains("model.layers.1.self_attn.k_proj.weight"));
  EXPECT_THAT(names, Not(Contains("model.layers.2.self_attn.k_proj.weight")));
  EXPECT_THAT(model->ignored_prefixes(), Contains("model.layers.2.self_attn.k_proj."));
}

// The published file of Gemma 3 4B.
TEST(PlainFamilies, TakeTheSizesThatAFileLeavesOut) {
  const auto config = testing::parse(json::parse(R"({
    "architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
    "eos_token_id": [1, 106],
    "text_config": {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34,
                    "model_type": "gemma3_text", "sliding_window": 1024,
                    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}}})"));
  EXPECT_EQ(config.vocab_size, 262208);
  EXPECT_EQ(config.num_attention_heads, 8);
  EXPECT_EQ(config.num_key_value_heads, 4);
  EXPECT_EQ(config.max_position_embeddings, 131072);
  EXPECT_EQ(config.head_dim, 256);
  EXPECT_EQ(config.rope.factor, 8);
  EXPECT_EQ(config.sliding_rope, (checkpoint::RopeConfig{.theta = 1e4}));
  EXPECT_TRUE(config.tie_word_embeddings);
}

// OLMo Hybrid's names depend on who wrote the file, and some stand for norms of either kind of
// layer; transformers 5 cuts the convolution into equal pieces, whatever their names say.
TEST(PlainFamilies, FindOlmoHybridUnderEitherSetOfNames) {
  const auto model = testing::model_of(testing::small_of("OlmoHybridForCausalLM"));
  const auto names = testing::hub_names(*model);
  for (const char* name : {"0.attention_layer_norm.weight", "0.input_layernorm.weight",
                           "0.feedforward_layer_norm.weight", "0.post_attention_layernorm.weight",
                           "0.linear_attn.conv1d.weight", "0.linear_attn.q_conv1d.weight",
                           "3.feedforward_layer_norm.weight", "3.post_attention_layernorm.weight",
                           "3.post_feedforward_layernorm.weight"}) {
    EXPECT_THAT(names, Contains("model.layers." + std::string(name)));
  }
  EXPECT_THAT(names, Not(Contains("model.layers.3.attention_layer_norm.weight")));
  std::vector<std::vector<int64_t>> pieces;
  for (const auto& spec : model->weight_specs()) {
    if (spec.name != "layers.0.linear_attn.conv") continue;
    for (const auto& assembly : spec.alternatives) {
      pieces.emplace_back();
      for (const auto& piece : assembly) pieces.back().push_back(piece.tensor.shape[0]);
    }
  }
  EXPECT_THAT(pieces,
              ElementsAre(ElementsAre(128), ElementsAre(32, 32, 64), ElementsAre(43, 43, 42)));
}

// A file without layer_types has attention in every fourth layer, or in the last of fewer.
TEST(PlainFamilies, PutTheAttentionOfAHybridWhereItsFileLeavesItOpen) {
  const auto kinds = [](std::string_view architecture, const json& changes) {
    return testing::parse(small_config(architecture, changes)).layer_kinds;
  };
  using testing::kF;
  using testing::kL;
  constexpr auto kC = checkpoint::LayerKind::kShortConvolution;
  EXPECT_THAT(kinds("OlmoHybridForCausalLM", json::object()), ElementsAre(kL, kL, kL, kF));
  EXPECT_THAT(kinds("OlmoHybridForCausalLM", {{"num_hidden_layers", 5}}),
              ElementsAre(kL, kL, kL, kF, kL));
  EXPECT_THAT(kinds("OlmoHybridForCausalLM", {{"num_hidden_layers", 3}}), ElementsAre(kL, kL, kF));
  EXPECT_THAT(kinds("MiniMaxForCausalLM", json::object()), ElementsAre(kF, kL, kF, kL));
  EXPECT_THAT(kinds("MiniMaxM1ForCausalLM", {{"attn_type_list", {0, 0, 0, 1}}}),
              ElementsAre(kL, kL, kL, kF));
  EXPECT_THAT(kinds("JambaForCausalLM", {{"attn_layer_period", 3}, {"attn_layer_offset", 1}}),
              ElementsAre(kL, kF, kL, kL));
  EXPECT_THAT(kinds("Lfm2ForCausalLM", json::object()), ElementsAre(kF, kF, kF, kF));
  EXPECT_THAT(kinds("Lfm2ForCausalLM", {{"full_attn_idxs", {1, 3}}}), ElementsAre(kC, kF, kC, kF));
}

TEST(PlainFamilies, GiveAShortConvolutionItsBiases) {
  json config = testing::small_of("Lfm2ForCausalLM");
  EXPECT_THAT(testing::hub_names(*testing::model_of(config)),
              Not(Contains("model.layers.0.conv.conv.bias")));
  config["conv_bias"] = true;
  const auto names = testing::hub_names(*testing::model_of(config));
  for (const char* name : {"in_proj", "conv", "out_proj"}) {
    EXPECT_THAT(names, Contains(fmt::format("model.layers.0.conv.{}.bias", name)));
  }
}

// Two thirds of the width that the file has, rounded up to a multiple; experts have what it says.
TEST(PlainFamilies, TakeTheWidthThatLfm2Means) {
  const auto width = [](const json& changes) {
    return testing::parse(small_config("Lfm2ForCausalLM", changes)).intermediate_size;
  };
  EXPECT_EQ(width({{"block_ff_dim", 12288}}), 8192);
  EXPECT_EQ(width({{"intermediate_size", 6656}}), 4608);
  EXPECT_EQ(width({{"intermediate_size", 6656}, {"block_ff_dim", 12288}}), 8192);
  EXPECT_EQ(width({{"intermediate_size", 6656}, {"block_auto_adjust_ff_dim", false}}), 6656);
  EXPECT_EQ(width({{"intermediate_size", 600},
                   {"block_ffn_dim_multiplier", 1.3},
                   {"block_multiple_of", 8}}),
            520);
  EXPECT_EQ(testing::parse(testing::small_of("Lfm2MoeForCausalLM")).intermediate_size, 96);
}

TEST(PlainFamilies, FindTheLanguageModelInACheckpointWithAVisionTower) {
  for (const char* architecture :
       {"Gemma3ForConditionalGeneration", "Mistral3ForConditionalGeneration",
        "Qwen3VLForConditionalGeneration", "Qwen3VLMoeForConditionalGeneration"}) {
    SCOPED_TRACE(architecture);
    const auto names = testing::hub_names(*testing::model_of(testing::small_of(architecture)));
    EXPECT_THAT(names, Contains("model.language_model.layers.0.self_attn.q_proj.weight"));
    EXPECT_THAT(names, Not(Contains("model.layers.0.self_attn.q_proj.weight")));
  }
  // Around Mistral Small 3 and 4: its language model says which of the two it is.
  json mistral4 = testing::small_of("Mistral4ForCausalLM");
  mistral4["architectures"] = {"Mistral3ForConditionalGeneration"};
  const auto names = testing::hub_names(*testing::model_of(mistral4));
  for (const char* name : {"language_model.model.layers.0.self_attn.kv_b_proj.weight",
                           "model.language_model.layers.5.mlp.gate.weight"}) {
    EXPECT_THAT(names, Contains(name));
  }
  const auto kimi = testing::model_of(testing::small_of("KimiK25ForConditionalGeneration"));
  for (const char* layers : {"language_model.model.layers.", "language_model.model.blocks.",
                             "model.language_model.layers."}) {
    EXPECT_THAT(testing::hub_names(*kimi),
                Contains(std::string(layers) + "0.self_attn.kv_b_proj.weight"));
  }
}

// The file has the matrices of all experts in one tensor, with the inputs in the rows.
TEST(PlainFamilies, TransposeTheExpertsOfQwen3Vl) {
  const auto model = testing::model_of(testing::small_of("Qwen3VLMoeForConditionalGeneration"));
  std::set<std::string> seen;
  for (const auto& spec : model->weight_specs()) {
    for (const auto& assembly : spec.alternatives) {
      for (const auto& piece : assembly) {
        const std::string& name = piece.tensor.name;
        if (!name.starts_with("model.language_model.layers.1.mlp.experts.")) continue;
        const bool down = name.ends_with("experts.down_proj");
        if (!down && !name.ends_with("experts.gate_up_proj")) continue;
        seen.insert(name);
        EXPECT_EQ(piece.form, checkpoint::RowForm::kInputMajor);
        EXPECT_EQ(piece.tensor.shape, down ? Shape({8, 32, 64}) : Shape({8, 64, 64}));
        EXPECT_EQ(piece.runs.size(), 8u);
      }
    }
  }
  EXPECT_EQ(seen.size(), 2u);
}

TEST(PlainFamilies, HaveAnotherTableOfLongRopeBeyondTheOriginalContext) {
  json config = small_config("Phi3ForCausalLM", {{"max_position_embeddings", 256},
                                                 {"original_max_position_embeddings", 64},
                                                 {"partial_rotary_factor", 0.75}});
  const json longs = {1.5, 2.2, 2.9, 3.6, 4.3, 5.0}, shorts = {1.0, 1.1, 1.2, 1.3, 1.4, 1.5};
  for (const char* type : {"longrope", "su", "yarn"}) {
    config["rope_scaling"] = {{"type", type}, {"long_factor", longs}, {"short_factor", shorts}};
    const auto parsed = testing::parse(config);
    EXPECT_EQ(parsed.max_position_embeddings, 256);
    EXPECT_TRUE(parsed.notes.empty());
    EXPECT_EQ(checkpoint::short_rope_tokens(parsed.rope), 64);
    const auto frequencies = checkpoint::inverse_frequencies(parsed.rope, parsed.head_dim);
    ASSERT_EQ(frequencies.inverse.size(), 6u);
    ASSERT_EQ(frequencies.inverse_of_long.size(), 6u);
    EXPECT_EQ(frequencies.inverse[0], 1.0f);
    EXPECT_NEAR(frequencies.inverse[5], std::pow(1e4, -10.0 / 12) / 1.5, 1e-9);
    EXPECT_NEAR(frequencies.inverse_of_long[0], 1 / 1.5, 1e-7);
    EXPECT_NEAR(frequencies.inverse_of_long[5], std::pow(1e4, -10.0 / 12) / 5, 1e-9);
    EXPECT_NEAR(frequencies.attention_factor, std::sqrt(1 + std::log(4.0) / std::log(64.0)), 1e-6);
  }
  config["rope_scaling"]["attention_factor"] = 1.25;
  EXPECT_EQ(checkpoint::inverse_frequencies(testing::parse(config).rope, 16).attention_factor,
            1.25f);
  config["original_max_position_embeddings"] = 512;
  const auto within = testing::parse(config);
  EXPECT_EQ(checkpoint::short_rope_tokens(within.rope), 0) << "no sequence is longer";
  EXPECT_EQ(within.max_position_embeddings, 256);
  config["head_dim"] = 24;
  EXPECT_EQ(testing::refusal(config).message(),
            "long_factor is [1.5,2.2,2.9,3.6,4.3,5.0], not a list of 9 numbers; "
            "write the model's value, or download the file again");
}

// Implementations disagree about texts beyond the original context, so those are not served.
TEST(PlainFamilies, ServeTheSparsemixersLongRopeWithinTheOriginalContext) {
  const std::vector<double> ones(8, 1.0);
  const auto parsed =
      testing::parse(small_config("PhiMoEForCausalLM", {{"num_local_experts", 4},
                                                        {"num_experts_per_tok", 2},
                                                        {"max_position_embeddings", 256},
                                                        {"original_max_position_embeddings", 64},
                                                        {"rope_scaling",
                                                         {{"type", "longrope"},
                                                          {"short_mscale", 1.25},
                                                          {"long_mscale", 1.5},
                                                          {"long_factor", ones},
                                                          {"short_factor", ones}}}}));
  EXPECT_EQ(parsed.max_position_embeddings, 64);
  EXPECT_THAT(parsed.notes,
              ElementsAre(::testing::HasSubstr("the longest context is 64, not 256")));
  EXPECT_EQ(checkpoint::short_rope_tokens(parsed.rope), 0);
  EXPECT_EQ(checkpoint::inverse_frequencies(parsed.rope, parsed.head_dim).attention_factor, 1.25f);
  EXPECT_EQ(parsed.moe->router->nearness, 0.02);
}

TEST(PlainFamilies, RotateThePartOfAHeadThatEitherKeyNames) {
  json config = testing::small_of("MiniMaxM2ForCausalLM");
  config["rotary_dim"] = 8;
  EXPECT_EQ(testing::parse(config).rope.partial_rotary_factor, 0.5);
  config["partial_rotary_factor"] = 0.5;
  EXPECT_EQ(testing::parse(config).rope.partial_rotary_factor, 0.5);
  EXPECT_EQ(testing::parse(testing::small_of("Glm4MoeForCausalLM")).rope.partial_rotary_factor,
            0.5);
}

}  // namespace
}  // namespace heddle::models
