// SPDX-License-Identifier: Apache-2.0
// GGUF files beside the same numbers in the hub's layout: in exact mode both give the same logits,
// bit for bit.
#include <algorithm>
#include <fstream>
#include <iterator>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "chat/chat_template.h"
#include "runner/program/forward_pass.h"
#include "support/gguf_twin.h"
#include "support/test_data.h"
#include "tokenizer/tokenizer.h"
#include "verify/session.h"

namespace heddle {
namespace {

using testing::gguf_form;
using testing::GgufForm;
using testing::GgufTwin;
using ::testing::HasSubstr;
using verify::Session;

struct GgufRun {
  std::vector<float> logits;
  int64_t weight_bytes = 0;
};

GgufRun run_exact(const std::filesystem::path& model) {
  GgufRun run;
  auto pass = runner::ForwardPass::create({.model_dir = model,
                                           .dtype = DType::kF32,
                                           .exact = true,
                                           .num_threads = 2,
                                           .max_step_tokens = 32,
                                           .max_logit_rows = 32});
  EXPECT_TRUE(pass.ok()) << pass.status().to_string();
  if (!pass.ok()) return run;
  run.weight_bytes = (*pass)->weights().bytes_copied() + (*pass)->weights().bytes_in_place();
  auto session = Session::create(**pass, {.num_sequences = 1, .max_tokens = 64});
  EXPECT_TRUE(session.ok());
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < 21; ++i) tokens.push_back((i * 97 + 11) % 300);
  const std::vector<Session::Feed> feed = {{0, tokens}};
  EXPECT_TRUE(session->step(feed, runner::LogitRows::kAll).ok());
  const TensorView logits = session->logits();
  run.logits.assign(logits.as<float>(), logits.as<float>() + logits.num_elements());
  return run;
}

// `share` of the bytes that fp32 weights take is the most that the file's weights may take.
void expect_equal_runs(const GgufTwin& twin, double share = 1) {
  const GgufRun hub = run_exact(twin.hub());
  const GgufRun gguf = run_exact(twin.gguf());
  ASSERT_FALSE(hub.logits.empty());
  EXPECT_TRUE(std::ranges::all_of(hub.logits, [](float value) { return std::isfinite(value); }));
  EXPECT_NE(hub.logits.front(), hub.logits.back());
  EXPECT_EQ(hub.logits, gguf.logits);
  EXPECT_LE(static_cast<double>(gguf.weight_bytes), share * static_cast<double>(hub.weight_bytes));
}

nlohmann::json heddle_tinys_config() {
  std::ifstream file(testing::repository_path("models/heddle-tiny/config.json"));
  nlohmann::json config = nlohmann::json::parse(file);
  config.erase("num_nextn_predict_layers");
  return config;
}

nlohmann::json small_gguf_config(std::string_view architecture, const nlohmann::json& changes) {
  nlohmann::json config = {
      {"architectures", {architecture}}, {"vocab_size", 320},      {"hidden_size", 256},
      {"intermediate_size", 512},        {"num_hidden_layers", 2}, {"num_attention_heads", 4},
      {"num_key_value_heads", 2},        {"head_dim", 64},         {"max_position_embeddings", 512},
      {"tie_word_embeddings", false},    {"rope_theta", 10000.0},  {"rms_norm_eps", 1e-6}};
  config.update(changes);
  return config;
}

// As Q4_K_M and its like: several types within q, k and v, and within the experts of a model.
GgufForm mixed_form(std::string_view hub_name) {
  for (const std::string_view part : {"v_proj", "down_proj", "lm_head", "embed_tokens"}) {
    if (hub_name.find(part) != std::string_view::npos) return gguf_form("Q6_K");
  }
  return gguf_form(hub_name.find("k_proj") != std::string_view::npos ? "Q8_0" : "Q4_K");
}

class GgufTypes : public ::testing::TestWithParam<GgufForm> {};

TEST_P(GgufTypes, GiveTheLogitsOfTheSameNumbersInHeddleTinysShape) {
  const GgufTwin twin(heddle_tinys_config(), "qwen3next",
                      [](std::string_view) { return GetParam(); });
  // Packed weights take 0.5 to 1.13 bytes instead of 4.
  const bool four_bits =
      GetParam().blocks && quant::packed_format(*GetParam().blocks, 256)->four_bits();
  expect_equal_runs(twin, four_bits ? 0.2 : GetParam().blocks ? 0.3 : 1);
}

INSTANTIATE_TEST_SUITE_P(Every, GgufTypes, ::testing::ValuesIn(testing::kGgufForms),
                         [](const auto& test) { return std::string(test.param.name); });

struct GgufFamily {
  const char* gguf;
  const char* hub;
  nlohmann::json changes;
};

void PrintTo(const GgufFamily& family, std::ostream* out) { *out << family.gguf; }

const nlohmann::json kGgufExperts = {
    {"num_experts", 6}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 256}};

std::vector<GgufFamily> gguf_families() {
  nlohmann::json qwen3_moe = kGgufExperts;
  qwen3_moe["norm_topk_prob"] = true;
  nlohmann::json qwen2_moe = kGgufExperts;
  qwen2_moe["shared_expert_intermediate_size"] = 256;
  return {{"llama", "LlamaForCausalLM", {{"tie_word_embeddings", true}}},
          {"llama", "MistralForCausalLM", {{"sliding_window", 12}}},
          {"llama", "MixtralForCausalLM", {{"num_local_experts", 4}, {"num_experts_per_tok", 2}}},
          {"qwen2", "Qwen2ForCausalLM", {{"head_dim", 64}}},
          {"qwen2moe", "Qwen2MoeForCausalLM", qwen2_moe},
          {"qwen3", "Qwen3ForCausalLM", {{"head_dim", 128}}},
          {"qwen3moe", "Qwen3MoeForCausalLM", qwen3_moe},
          {"gpt-oss",
           "GptOssForCausalLM",
           {{"num_local_experts", 4},
            {"num_experts_per_tok", 2},
            {"intermediate_size", 256},
            {"sliding_window", 8}}},
          {"gemma3",
           "Gemma3ForCausalLM",
           {{"tie_word_embeddings", true},
            {"num_hidden_layers", 7},
            {"sliding_window", 8},
            {"rope_theta", 1e6},
            {"rope_local_base_freq", 1e4},
            {"query_pre_attn_scalar", 64},
            {"torch_dtype", "bfloat16"},
            {"hidden_activation", "gelu_pytorch_tanh"}}}};
}

std::vector<GgufFamily> recurrent_gguf_families() {
  const nlohmann::json delta = {{"head_dim", 64},
                                {"partial_rotary_factor", 0.25},
                                {"linear_num_key_heads", 2},
                                {"linear_num_value_heads", 6},
                                {"linear_key_head_dim", 64},
                                {"linear_value_head_dim", 128},
                                {"linear_conv_kernel_dim", 4},
                                {"layer_types", {"linear_attention", "full_attention"}}};
  nlohmann::json delta_moe = delta;
  delta_moe.update(kGgufExperts);
  delta_moe["shared_expert_intermediate_size"] = 256;
  nlohmann::json granite = {{"mamba_n_heads", 8},
                            {"mamba_d_head", 64},
                            {"mamba_d_state", 32},
                            {"mamba_n_groups", 2},
                            {"mamba_d_conv", 4},
                            {"layer_types", {"mamba", "attention"}},
                            {"shared_intermediate_size", 512},
                            {"embedding_multiplier", 3.0},
                            {"residual_multiplier", 0.5},
                            {"attention_multiplier", 0.125},
                            {"logits_scaling", 2.0},
                            {"num_local_experts", 0}};
  nlohmann::json granite_moe = granite;
  granite_moe.update({{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  const nlohmann::json nemotron = {{"hybrid_override_pattern", "M*E-"},
                                   {"num_hidden_layers", 4},
                                   {"mamba_num_heads", 8},
                                   {"mamba_head_dim", 32},
                                   {"ssm_state_size", 32},
                                   {"n_groups", 2},
                                   {"conv_kernel", 4},
                                   {"layer_norm_epsilon", 1e-5},
                                   {"n_routed_experts", 4},
                                   {"n_shared_experts", 1},
                                   {"num_experts_per_tok", 2},
                                   {"moe_intermediate_size", 256},
                                   {"moe_shared_expert_intermediate_size", 256},
                                   {"routed_scaling_factor", 2.5}};
  nlohmann::json without_experts = nemotron;
  without_experts["hybrid_override_pattern"] = "M*-M";
  for (const char* key :
       {"n_routed_experts", "n_shared_experts", "num_experts_per_tok", "moe_intermediate_size",
        "moe_shared_expert_intermediate_size", "routed_scaling_factor"}) {
    without_experts.erase(key);
  }
  nlohmann::json latent_experts = nemotron;
  latent_experts["moe_latent_size"] = 256;
  const nlohmann::json lfm2 = {{"layer_types", {"conv", "full_attention"}},
                               {"conv_L_cache", 3},
                               {"norm_eps", 1e-5},
                               {"block_auto_adjust_ff_dim", false},
                               {"tie_word_embeddings", true}};
  nlohmann::json lfm2_moe = lfm2;
  lfm2_moe.update(kGgufExperts);
  lfm2_moe["num_dense_layers"] = 1;
  return {{"qwen35", "Qwen3_5ForCausalLM", delta},
          {"qwen35moe", "Qwen3_5MoeForCausalLM", delta_moe},
          {"granitehybrid", "GraniteMoeHybridForCausalLM", granite},
          {"granitehybrid", "GraniteMoeHybridForCausalLM", granite_moe},
          {"nemotron_h_moe", "NemotronHForCausalLM", nemotron},
          {"nemotron_h_moe", "NemotronHForCausalLM", latent_experts},
          {"nemotron_h", "NemotronHForCausalLM", without_experts},
          {"lfm2", "Lfm2ForCausalLM", lfm2},
          {"lfm2moe", "Lfm2MoeForCausalLM", lfm2_moe}};
}

std::vector<GgufFamily> latent_gguf_families() {
  const nlohmann::json v3 = {{"num_key_value_heads", 4},
                             {"q_lora_rank", 256},
                             {"kv_lora_rank", 256},
                             {"qk_nope_head_dim", 64},
                             {"qk_rope_head_dim", 32},
                             {"v_head_dim", 64},
                             {"moe_intermediate_size", 256},
                             {"n_routed_experts", 8},
                             {"n_shared_experts", 1},
                             {"num_experts_per_tok", 2},
                             {"n_group", 4},
                             {"topk_group", 2},
                             {"first_k_dense_replace", 1},
                             {"routed_scaling_factor", 2.5},
                             {"norm_topk_prob", true},
                             {"rope_scaling",
                              {{"rope_type", "yarn"},
                               {"factor", 4.0},
                               {"original_max_position_embeddings", 128},
                               {"beta_fast", 24},
                               {"mscale", 0.5},
                               {"mscale_all_dim", 0.5}}},
                             {"scoring_func", "sigmoid"}};
  nlohmann::json v2 = v3;
  for (const char* key : {"q_lora_rank", "scoring_func", "n_group", "topk_group"}) v2.erase(key);
  v2["norm_topk_prob"] = false;
  nlohmann::json v2_groups = v2;
  v2_groups.update({{"n_group", 4}, {"topk_group", 2}, {"topk_method", "group_limited_greedy"}});
  return {{"deepseek2", "DeepseekV3ForCausalLM", v3},
          {"deepseek2", "DeepseekV2ForCausalLM", v2},
          {"deepseek2", "DeepseekV2ForCausalLM", v2_groups}};
}

std::vector<GgufFamily> attention_gguf_families() {
  const nlohmann::json glm = {{"partial_rotary_factor", 0.5}, {"attention_bias", true},
                              {"use_qk_norm", true},          {"n_routed_experts", 4},
                              {"n_shared_experts", 1},        {"num_experts_per_tok", 2},
                              {"moe_intermediate_size", 256}, {"first_k_dense_replace", 1},
                              {"norm_topk_prob", true},       {"routed_scaling_factor", 1.5}};
  nlohmann::json gemma4 = {
      {"head_dim", 64},
      {"global_head_dim", 128},
      {"num_key_value_heads", 2},
      {"num_global_key_value_heads", 1},
      {"attention_k_eq_v", true},
      {"sliding_window", 8},
      {"vocab_size_per_layer_input", 320},
      {"hidden_size_per_layer_input", 256},
      {"num_kv_shared_layers", 0},
      {"num_hidden_layers", 4},
      {"layer_types",
       {"sliding_attention", "full_attention", "sliding_attention", "full_attention"}},
      {"rope_parameters",
       {{"full_attention",
         {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.25}, {"rope_theta", 1e4}}},
        {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", 1e4}}}}},
      {"final_logit_softcapping", 30.0},
      {"tie_word_embeddings", true},
      {"torch_dtype", "bfloat16"},
      {"hidden_activation", "gelu_pytorch_tanh"}};
  nlohmann::json gemma4_moe = gemma4;
  gemma4_moe.update({{"hidden_size_per_layer_input", 0},
                     {"enable_moe_block", true},
                     {"num_experts", 4},
                     {"top_k_experts", 2},
                     {"moe_intermediate_size", 256}});
  gemma4.update({{"num_kv_shared_layers", 2}, {"attention_k_eq_v", false}});
  gemma4.erase("num_global_key_value_heads");
  const nlohmann::json granite = {{"embedding_multiplier", 3.0},
                                  {"residual_multiplier", 0.5},
                                  {"attention_multiplier", 0.125},
                                  {"logits_scaling", 2.0}};
  nlohmann::json granite_moe = granite;
  granite_moe.update({{"num_local_experts", 4}, {"num_experts_per_tok", 2}});
  const nlohmann::json ernie = {{"moe_num_experts", 4},         {"moe_k", 2},
                                {"moe_intermediate_size", 256}, {"moe_num_shared_experts", 1},
                                {"moe_layer_interval", 1},      {"moe_layer_start_index", 1}};
  nlohmann::json qwen3_moe = kGgufExperts;
  qwen3_moe["norm_topk_prob"] = true;
  const nlohmann::json slides = {{"num_hidden_layers", 4}, {"sliding_window", 8}};
  nlohmann::json cohere = slides;
  cohere.update({{"tie_word_embeddings", true}, {"layer_norm_eps", 1e-5}, {"logit_scale", 0.25}});
  const nlohmann::json minimax = {{"num_local_experts", 4},
                                  {"num_experts_per_tok", 2},
                                  {"rotary_dim", 32},
                                  {"scoring_func", "sigmoid"}};
  return {{"glm4moe", "Glm4MoeForCausalLM", glm},
          {"gemma4", "Gemma4ForCausalLM", gemma4},
          {"gemma4", "Gemma4ForCausalLM", gemma4_moe},
          {"granite", "GraniteForCausalLM", granite},
          {"granitemoe", "GraniteMoeForCausalLM", granite_moe},
          {"ernie4_5-moe", "Ernie4_5_MoeForCausalLM", ernie},
          {"cohere2", "Cohere2ForCausalLM", cohere},
          {"exaone4", "Exaone4ForCausalLM", slides},
          {"olmo2", "Olmo3ForCausalLM", slides},
          {"minimax-m2", "MiniMaxM2ForCausalLM", minimax},
          {"phi3", "Phi3ForCausalLM", {{"sliding_window", 8}}},
          {"qwen3vl", "Qwen3ForCausalLM", {{"head_dim", 64}}},
          {"qwen3vlmoe", "Qwen3MoeForCausalLM", qwen3_moe},
          {"seed_oss", "SeedOssForCausalLM", {{"attention_bias", true}}},
          {"smollm3", "SmolLM3ForCausalLM", {{"num_hidden_layers", 4}}}};
}

class GgufFamilies : public ::testing::TestWithParam<GgufFamily> {};

TEST_P(GgufFamilies, UndoWhatTheConverterDid) {
  const GgufFamily& family = GetParam();
  const nlohmann::json config = small_gguf_config(family.hub, family.changes);
  for (const std::string_view form : {"F32", "Q8_0", "mixed"}) {
    SCOPED_TRACE(form);
    const GgufTwin twin(config, family.gguf, [form](std::string_view name) {
      return form == "mixed" ? mixed_form(name) : gguf_form(form);
    });
    expect_equal_runs(twin);
  }
}

std::string name_of_family(const ::testing::TestParamInfo<GgufFamily>& test) {
  return fmt::format("{}_{}", test.param.hub, test.index);
}

INSTANTIATE_TEST_SUITE_P(Served, GgufFamilies, ::testing::ValuesIn(gguf_families()),
                         name_of_family);
INSTANTIATE_TEST_SUITE_P(Recurrent, GgufFamilies, ::testing::ValuesIn(recurrent_gguf_families()),
                         name_of_family);
INSTANTIATE_TEST_SUITE_P(Latent, GgufFamilies, ::testing::ValuesIn(latent_gguf_families()),
                         name_of_family);
INSTANTIATE_TEST_SUITE_P(Attention, GgufFamilies, ::testing::ValuesIn(attention_gguf_families()),
                         name_of_family);

TEST(GgufModels, HaveTheRotationOfLlama3) {
  nlohmann::json config = small_gguf_config("LlamaForCausalLM", {{"rope_theta", 500000.0}});
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 8192}};
  GgufTwin twin(config, "llama", [](std::string_view) { return gguf_form("F16"); });
  std::vector<float> divisors;
  for (int i = 0; i < 32; ++i) {
    const double wavelength = 2 * 3.14159265358979 * std::pow(500000.0, i / 32.0);
    const double kept = (8192 / wavelength - 1) / 3;
    divisors.push_back(wavelength < 2048   ? 1.0f
                       : wavelength > 8192 ? 8.0f
                                           : static_cast<float>(1 / ((1 - kept) / 8 + kept)));
  }
  twin.writer().tensor("rope_freqs.weight", {32}, divisors);
  twin.write_gguf();
  expect_equal_runs(twin);
}

TEST(GgufModels, HaveTheTwoTablesOfLongrope) {
  std::vector<float> long_ones, short_ones;
  for (int i = 0; i < 32; ++i) {
    long_ones.push_back(1.0f + 0.5f * static_cast<float>(i));
    short_ones.push_back(1.0f + 0.125f * static_cast<float>(i));
  }
  nlohmann::json config =
      small_gguf_config("Phi3ForCausalLM", {{"original_max_position_embeddings", 256},
                                            {"rope_scaling",
                                             {{"type", "longrope"},
                                              {"long_factor", long_ones},
                                              {"short_factor", short_ones},
                                              {"attention_factor", 1.25}}}});
  GgufTwin twin(config, "phi3", [](std::string_view) { return gguf_form("F16"); });
  twin.writer().u32("phi3.rope.scaling.original_context_length", 256);
  twin.writer().f32("phi3.rope.scaling.attn_factor", 1.25f);
  twin.writer().tensor("rope_factors_long.weight", {32}, long_ones);
  twin.writer().tensor("rope_factors_short.weight", {32}, short_ones);
  twin.write_gguf();
  expect_equal_runs(twin);
  EXPECT_EQ(checkpoint::short_rope_tokens(models::load_config(twin.gguf())->rope), 256);
}

TEST(GgufModels, LeaveOutWhatPredictsFurtherTokens) {
  const nlohmann::json config = small_gguf_config("Qwen3ForCausalLM", {{"head_dim", 64}});
  GgufTwin twin(config, "qwen3", [](std::string_view) { return gguf_form("F16"); });
  twin.writer().u32("qwen3.nextn_predict_layers", 1);
  twin.writer().tensor("blk.1.nextn.enorm.weight", {256}, std::vector<float>(256, 1));
  twin.write_gguf();
  const auto config_of_file = models::load_config(twin.gguf());
  ASSERT_TRUE(config_of_file.ok()) << config_of_file.status().to_string();
  EXPECT_EQ(config_of_file->num_layers, 1);  // of two blocks the last one predicts
  EXPECT_TRUE(runner::ForwardPass::create({.model_dir = twin.gguf()}).ok());
}

Status load_error(const GgufTwin& twin) {
  return runner::ForwardPass::create({.model_dir = twin.gguf()}).status();
}

TEST(GgufModels, NameWhatIsNotServedBeforeAnyWeightIsRead) {
  const nlohmann::json config = small_gguf_config("LlamaForCausalLM", nlohmann::json::object());
  const auto twin = [&](const std::string& architecture = "llama") {
    return GgufTwin(config, architecture, [](std::string_view) { return gguf_form("F16"); });
  };
  EXPECT_THAT(
      load_error(twin("falcon")).message(),
      HasSubstr("architecture \"falcon\" is not served from GGUF files; served are cohere2, "
                "deepseek2, ernie4_5-moe, exaone4, gemma3"));
  GgufTwin scaled = twin();
  scaled.writer().f32("llama.logit_scale", 0.5f);
  scaled.write_gguf();
  EXPECT_THAT(load_error(scaled).message(), HasSubstr("llama.logit_scale is 0.5; the family is"));
  GgufTwin longrope = twin();
  longrope.writer().text("llama.rope.scaling.type", "longrope");
  longrope.write_gguf();
  EXPECT_THAT(load_error(longrope).message(),
              HasSubstr("llama.rope.scaling.type is \"longrope\"; served are none, linear"));
  GgufTwin absurd = twin();
  absurd.writer().u32("llama.expert_used_count", 4294967295u);
  absurd.writer().u32("llama.expert_count", 4);
  absurd.write_gguf();
  EXPECT_THAT(load_error(absurd).message(),
              HasSubstr("llama.expert_used_count\" is 4294967295, more than"));
  GgufTwin divisors = twin();
  divisors.writer().tensor("rope_freqs.weight", {32}, std::vector<float>(32, 3));
  divisors.write_gguf();
  EXPECT_THAT(load_error(divisors).message(), HasSubstr("rope_freqs.weight"));
  GgufTwin type = twin();
  type.writer().tensor("blk.0.extra.weight", {1, 256}, 10, std::vector<std::byte>(84));
  type.write_gguf();
  EXPECT_THAT(
      load_error(type).message(),
      HasSubstr("tensor \"blk.0.extra.weight\" is stored as Q2_K, which is not served; take "
                "the model's Q4_K_M"));
  GgufTwin extra = twin();
  extra.writer().tensor("blk.0.extra.weight", {2}, std::vector<float>{1, 2});
  extra.write_gguf();
  EXPECT_THAT(load_error(extra).message(), HasSubstr("1 unexpected: \"blk.0.extra.weight\""));
}

// heddle-tiny as its converter would write it: the numbers as they are, and its tokenizer.
GgufTwin::FormOf all_in(std::string_view form) {
  return [form](std::string_view) { return gguf_form(form); };
}

void write_tokenizer(checkpoint::testing::GgufWriter& writer) {
  const std::filesystem::path folder = testing::repository_path("models/heddle-tiny");
  std::ifstream file(folder / "tokenizer.json");
  const nlohmann::json json = nlohmann::json::parse(file);
  std::vector<std::string> tokens(1428);
  std::vector<int32_t> kinds(tokens.size(), 1);
  for (const auto& [token, id] : json.at("model").at("vocab").items()) tokens.at(id) = token;
  for (const auto& added : json.at("added_tokens")) {
    tokens.at(added.at("id")) = added.at("content");
    kinds.at(added.at("id")) = 3;
  }
  std::vector<std::string> merges;
  for (const auto& merge : json.at("model").at("merges")) {
    merges.push_back(merge.is_string()
                         ? merge.get<std::string>()
                         : merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  }
  writer.text("tokenizer.ggml.model", "gpt2");
  writer.text("tokenizer.ggml.pre", "qwen2");
  writer.texts("tokenizer.ggml.tokens", tokens);
  writer.integers("tokenizer.ggml.token_type", kinds);
  writer.texts("tokenizer.ggml.merges", merges);
  writer.u32("tokenizer.ggml.eos_token_id", 1427);
  writer.u32("tokenizer.ggml.padding_token_id", 1425);
  writer.boolean("tokenizer.ggml.add_bos_token", false);
  std::ifstream settings(folder / "tokenizer_config.json");
  writer.text("tokenizer.chat_template",
              nlohmann::json::parse(settings).at("chat_template").get<std::string>());
}

TEST(GgufModels, CarryTheTokenizerTheTemplateAndTheEndsOfTexts) {
  GgufTwin twin(heddle_tinys_config(), "qwen3next", all_in("BF16"));
  write_tokenizer(twin.writer());
  twin.write_gguf();
  const auto folder = testing::repository_path("models/heddle-tiny");
  const auto own = tokenizer::load_tokenizer(twin.gguf());
  const auto hubs = tokenizer::load_tokenizer(folder);
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  for (const char* text :
       {"A farmer has 12 sheep, and buys 7.", "<|im_start|>user\nété\u0301 \t"}) {
    EXPECT_EQ((*own)->encode(text).value(), (*hubs)->encode(text).value());
  }
  EXPECT_TRUE(tokenizer::check_same_tokens(**own, **hubs).ok());
  EXPECT_EQ((*own)->eos_token(), (*hubs)->eos_token());
  EXPECT_EQ((*own)->pad_text(), (*hubs)->pad_text());
  const auto conversation = nlohmann::ordered_json::parse(R"([{"role": "user", "content": "Hi"}])");
  const auto rendered = [&](const std::filesystem::path& model) {
    return chat::ChatTemplate::load(model)
        .value()
        .render(conversation, nullptr, true, nullptr)
        .value();
  };
  EXPECT_EQ(rendered(twin.gguf()), rendered(folder));
  const auto config = models::load_config(twin.gguf());
  ASSERT_TRUE(config.ok());
  EXPECT_THAT(config->eos_token_ids, ::testing::ElementsAre(1425, 1427));
}

}  // namespace
}  // namespace heddle
