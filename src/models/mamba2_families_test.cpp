// SPDX-License-Identifier: Apache-2.0
// Families with Mamba-2 layers: the sizes of published models, which a weight that is missing or of
// a wrong shape would change, and what a sequence of theirs keeps; how their files spell layers and
// limits.
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>

#include "models/layers/mamba2.h"
#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::Contains;
using ::testing::ElementsAre;
using testing::kF;
using testing::kL;
using ::testing::Not;

struct PublishedHybrid {
  const char* name;
  std::string_view architecture;
  json keys;
  int64_t parameters;
  int64_t matrix_bytes;     // of the states of a sequence, fp32
  int64_t window_bytes;     // of its convolutions, as bf16
  int64_t bytes_per_token;  // of keys and values, as bf16
};

json sizes(int64_t vocabulary, int64_t hidden, int64_t layers, int64_t heads, int64_t kv_heads,
           int64_t intermediate) {
  return {{"vocab_size", vocabulary},        {"hidden_size", hidden},
          {"num_hidden_layers", layers},     {"num_attention_heads", heads},
          {"num_key_value_heads", kv_heads}, {"intermediate_size", intermediate}};
}

json with(json config, const json& more) {
  config.update(more);
  return config;
}

json mamba(int64_t heads, int64_t head_dim, int64_t state, int64_t groups) {
  return {{"mamba_n_heads", heads},
          {"mamba_d_head", head_dim},
          {"mamba_d_state", state},
          {"mamba_n_groups", groups}};
}

json layers_with_attention(int64_t count, const std::vector<int64_t>& attention) {
  json types = json::array();
  for (int64_t i = 0; i < count; ++i) types.push_back("mamba");
  for (const int64_t i : attention) types[static_cast<size_t>(i)] = "attention";
  return {{"layer_types", types}, {"tie_word_embeddings", true}};
}

std::vector<PublishedHybrid> published_hybrids() {
  std::string nemotron_8b;
  for (const char* part :
       {"M-M-M-M*-", "M-M-M-M-M*-", "M-M-M-M-M*-", "M-M-M-M-M*-", "M-M-M-M-M-"}) {
    nemotron_8b += part;
  }
  const json falcon = {{"head_dim", 128}};
  json zamba = json::array();
  for (int i = 0; i < 81; ++i) zamba.push_back(i > 0 && i % 6 == 0 ? "hybrid" : "mamba");
  return {
      {"nemotron_3_nano", "NemotronHForCausalLM",
       with(sizes(131072, 2688, 52, 32, 2, 1856),
            {{"hybrid_override_pattern", "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"},
             {"head_dim", 128},
             {"mamba_num_heads", 64},
             {"n_routed_experts", 128},
             {"num_experts_per_tok", 6},
             {"moe_intermediate_size", 1856},
             {"moe_shared_expert_intermediate_size", 3712}}),
       31'577'940'288, 48'234'496, 847'872, 6144},
      {"nemotron_h_8b", "NemotronHForCausalLM",
       with(sizes(131072, 4096, 52, 32, 8, 21504),
            {{"hybrid_override_pattern", nemotron_8b}, {"head_dim", 128}}),
       8'100'852'736, 100'663'296, 1'474'560, 16384},
      {"granite_4_tiny", "GraniteMoeHybridForCausalLM",
       with(with(sizes(100352, 1536, 40, 12, 4, 512), mamba(48, 64, 128, 1)),
            with(layers_with_attention(40, {5, 15, 25, 35}),
                 {{"num_local_experts", 64}, {"num_experts_per_tok", 6}})),
       6'939'037'248, 56'623'104, 718'848, 8192},
      {"granite_4_small", "GraniteMoeHybridForCausalLM",
       with(with(sizes(100352, 4096, 40, 32, 8, 768), mamba(128, 64, 128, 1)),
            with(layers_with_attention(40, {5, 15, 25, 35}), {{"num_local_experts", 72},
                                                              {"num_experts_per_tok", 10},
                                                              {"shared_intermediate_size", 1536}})),
       32'207'337'984, 150'994'944, 1'824'768, 16384},
      {"granite_4_350m", "GraniteMoeHybridForCausalLM",
       with(with(sizes(100352, 768, 32, 12, 4, 2048), mamba(48, 32, 128, 1)),
            with(layers_with_attention(32, {10, 13, 17, 27}),
                 {{"num_local_experts", 0}, {"shared_intermediate_size", 2048}})),
       340'332'224, 22'020'096, 301'056, 4096},
      {"falcon_h1_7b", "FalconH1ForCausalLM",
       with(with(sizes(130048, 3072, 44, 12, 2, 12288), mamba(24, 128, 256, 1)),
            with(falcon, {{"mamba_d_ssm", 3072}})),
       7'585'513'568, 138'412'032, 946'176, 45056},
      {"falcon_h1_7b_normed", "FalconH1ForCausalLM",
       with(with(sizes(130048, 3072, 44, 12, 2, 12288), mamba(24, 128, 256, 1)),
            with(falcon, {{"mamba_d_ssm", 3072}, {"mamba_rms_norm", true}})),
       7'585'648'736, 138'412'032, 946'176, 45056},
      {"falcon_h1_34b", "FalconH1ForCausalLM",
       with(with(sizes(261120, 5120, 72, 20, 4, 21504), mamba(32, 128, 256, 2)),
            with(falcon, {{"mamba_d_ssm", 4096}})),
       33'642'221'312, 301'989'888, 2'211'840, 147456},
      {"bamba_9b", "BambaForCausalLM",
       with(with(sizes(128256, 4096, 32, 32, 8, 14336), mamba(128, 64, 128, 1)),
            {{"attn_layer_indices", {9, 18, 27}}}),
       9'780'235'392, 121'634'816, 1'469'952, 12288},
      {"zamba2_7b", "Zamba2ForCausalLM",
       with(sizes(32000, 3584, 81, 32, 32, 14336), {{"n_mamba_heads", 112},
                                                    {"mamba_d_state", 64},
                                                    {"mamba_ngroups", 2},
                                                    {"num_mem_blocks", 2},
                                                    {"use_mem_rope", true},
                                                    {"layers_block_type", zamba}}),
       7'356'749'648, 148'635'648, 3'608'064, 372'736},
  };
}

TEST(Mamba2Families, HaveThePublishedSizes) {
  for (const PublishedHybrid& published : published_hybrids()) {
    SCOPED_TRACE(published.name);
    json config = with({{"architectures", {published.architecture}}}, published.keys);
    const auto model = testing::model_of(config);
    int64_t parameters = 0;
    for (const auto& spec : model->weight_specs()) parameters += spec.shape.num_elements();
    EXPECT_EQ(parameters, published.parameters);
    const CacheNeeds needs = model->cache_needs();
    int64_t matrices = 0, windows = 0, rows = 0;
    for (const StateGroup& group : needs.state_groups) {
      for (const StatePart& part : group.parts) {
        const bool is_window = part.tensor == ops::StateTensor::kConv;
        (is_window ? windows : matrices) += group.num_layers * part.shape.num_elements();
      }
    }
    for (const PageGroup& group : needs.page_groups) {
      rows += group.num_layers * group.shape.num_heads *
              (group.shape.head_dim + group.shape.value_width());
    }
    EXPECT_EQ(4 * matrices, published.matrix_bytes);
    EXPECT_EQ(2 * windows, published.window_bytes);
    EXPECT_EQ(2 * rows, published.bytes_per_token);
  }
}

TEST(Mamba2Families, LayersAreReadInEverySpelling) {
  json nemotron = testing::small_of("NemotronHForCausalLM");
  const auto expected = ElementsAre(kL, kF, kF, kF);
  EXPECT_THAT(testing::parse(nemotron).layer_kinds, expected);
  nemotron.erase("hybrid_override_pattern");
  nemotron.erase("num_hidden_layers");
  nemotron["layers_block_type"] = {"linear_attention", "moe", "full_attention", "mlp"};
  EXPECT_THAT(testing::parse(nemotron).layer_kinds, expected);
  EXPECT_THAT(testing::parse(nemotron).is_moe_layer, ElementsAre(false, true, false, false));
  nemotron["layer_types"] = {"mamba2", "moe", "attention", "mlp"};
  EXPECT_THAT(testing::parse(nemotron).layer_kinds, expected);

  json granite = testing::small_of("GraniteMoeHybridForCausalLM");
  const auto kinds = testing::parse(granite).layer_kinds;
  EXPECT_THAT(kinds, ElementsAre(kL, kF, kL, kL));
  granite["layers_block_type"] = {"mamba", "full_attention", "linear_attention", "mamba2"};
  granite.erase("layer_types");
  EXPECT_EQ(testing::parse(granite).layer_kinds, kinds);
}

// Of any reader: the values of a list of two numbers.
std::vector<double> limits_of(const std::string& limits) {
  const std::string text = "{\"time_step_limit\": " + limits + "}";
  const auto root = checkpoint::parse_json_object(text);
  EXPECT_TRUE(root.ok()) << root.status().to_string();
  if (!root.ok()) return {};
  Status error;
  checkpoint::ConfigReader reader({&*root}, error);
  Mamba2Config mamba;
  read_time_step_limit(reader, mamba);
  EXPECT_TRUE(error.ok()) << error.to_string();
  return {mamba.dt_low, mamba.dt_high};
}

TEST(Mamba2Families, InfinityIsReadInEverySpelling) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const char* spelling :
       {"Infinity", "\"inf\"", "\"Infinity\"", "null", "1e309", R"({"__float__": "Infinity"})"}) {
    EXPECT_THAT(limits_of(std::string("[0.125, ") + spelling + "]"), ElementsAre(0.125, infinity))
        << spelling;
  }
  EXPECT_THAT(limits_of("[0.0, 2]"), ElementsAre(0, 2));
  EXPECT_THAT(limits_of("null"), ElementsAre(0, infinity));
}

// Only time_step_limit clamps: the other keys are of the initial weights.
TEST(Mamba2Families, KeysOfInitialWeightsChangeNothing) {
  for (const char* architecture :
       {"NemotronHForCausalLM", "BambaForCausalLM", "Zamba2ForCausalLM"}) {
    const json plain = testing::small_of(architecture);
    const json more = {{"time_step_min", 0.1}, {"time_step_max", 0.5}, {"time_step_floor", 1e-4}};
    EXPECT_EQ(testing::parse(plain).own, testing::parse(with(plain, more)).own);
    EXPECT_FALSE(testing::parse(plain).own ==
                 testing::parse(with(plain, {{"time_step_limit", {0.1, nullptr}}})).own);
  }
}

// Keys of files of first releases, and what their classes take where a file says nothing.
TEST(Mamba2Families, OlderFilesAreRead) {
  json nemotron = testing::small_of("NemotronHForCausalLM");
  for (const char* key : {"head_dim", "num_key_value_heads"}) nemotron.erase(key);
  nemotron["num_attention_heads"] = 32;
  EXPECT_EQ(testing::parse(nemotron).head_dim, 128);
  EXPECT_EQ(testing::parse(nemotron).num_key_value_heads, 8);
  nemotron["attention_head_dim"] = 48;
  EXPECT_EQ(testing::parse(nemotron).head_dim, 48);

  json zamba = testing::small_of("Zamba2ForCausalLM");
  const auto own = testing::parse(zamba).own;
  const int64_t heads = zamba["n_mamba_heads"];
  const int64_t inner =
      zamba["hidden_size"].get<int64_t>() * zamba.value("mamba_expand", int64_t{2});
  zamba.erase("n_mamba_heads");
  zamba["mamba_headdim"] = inner / heads;
  EXPECT_EQ(testing::parse(zamba).own, own);
}

TEST(Mamba2Families, NamesAreThoseOfTheHub) {
  const auto nemotron =
      testing::hub_names(*testing::model_of(testing::small_of("NemotronHForCausalLM")));
  for (const char* name :
       {"backbone.embeddings.weight", "backbone.embedding.weight", "backbone.norm_f.weight",
        "backbone.layers.0.norm.weight", "backbone.layers.0.mixer.in_proj.weight",
        "backbone.layers.0.mixer.conv1d.bias", "backbone.layers.0.mixer.norm.weight",
        "backbone.layers.1.mixer.gate.e_score_correction_bias",
        "backbone.layers.1.mixer.experts.7.up_proj.weight",
        "backbone.layers.1.mixer.shared_experts.up_proj.weight",
        "backbone.layers.2.mixer.q_proj.weight", "backbone.layers.3.mixer.down_proj.weight",
        "lm_head.weight"}) {
    EXPECT_THAT(nemotron, Contains(name));
  }
  EXPECT_THAT(nemotron, Not(Contains("backbone.layers.1.mixer.experts.7.gate_proj.weight")));
  json latent = testing::small_of("NemotronHForCausalLM");
  latent["moe_latent_size"] = 16;
  EXPECT_THAT(testing::hub_names(*testing::model_of(latent)),
              Contains("backbone.layers.1.mixer.fc1_latent_proj.weight"));

  json falcon = testing::small_of("FalconH1ForCausalLM");
  const char* const norm = "model.layers.0.mamba.norm.weight";
  EXPECT_THAT(testing::hub_names(*testing::model_of(falcon)), Contains(norm));
  falcon["mamba_rms_norm"] = false;
  EXPECT_THAT(testing::hub_names(*testing::model_of(falcon)), Not(Contains(norm)));
}

}  // namespace
}  // namespace heddle::models
