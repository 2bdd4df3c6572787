// SPDX-License-Identifier: Apache-2.0
// Published configurations against the number of parameters their models are known to have: a
// weight that is missing, doubled or of a wrong shape shows here, without a byte of weights.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "checkpoint/mapped_file.h"
#include "models/registry.h"
#include "support/test_data.h"

namespace heddle::models {
namespace {

struct Published {
  const char* config;  // below data/configs/, without "_config.json"
  int64_t parameters;
  int64_t bytes_per_token;       // of pages in bf16, those of sliding layers too
  int64_t state_bytes = 0;       // of a sequence: matrices, and windows in fp32
  int64_t num_cache_layers = 0;  // that keep pages or a state; 0: all
};

void PrintTo(const Published& published, std::ostream* out) { *out << published.config; }

class ParameterCount : public ::testing::TestWithParam<Published> {};

TEST_P(ParameterCount, IsThePublishedOne) {
  const std::string name = GetParam().config;
  const std::string file = name.starts_with("mlc_presets") ? name + ".json" : name + "_config.json";
  HEDDLE_SHARED_PATH_OR_SKIP(source, "data/configs/" + file);
  std::string folder_name = name;
  std::replace(folder_name.begin(), folder_name.end(), '/', '_');
  const auto folder = std::filesystem::path(::testing::TempDir()) / ("heddle_" + folder_name);
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(source, folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  auto config = load_config(folder);
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  // Parameters are counted by what they mean; how a checkpoint packs them changes nothing.
  config->quantization.reset();
  const auto model = create_model(*config);
  int64_t total = 0;
  for (const auto& spec : model->weight_specs()) total += spec.shape.num_elements();
  EXPECT_EQ(total, GetParam().parameters);
  const CacheNeeds needs = model->cache_needs();
  int64_t bytes_per_token = 0, state_bytes = 0;
  for (const PageGroup& group : needs.page_groups) {
    const int64_t row = group.shape.num_heads * (group.shape.head_dim + group.shape.value_width());
    bytes_per_token += 2 * row * group.num_layers;
  }
  for (const StateGroup& group : needs.state_groups) {
    for (const StatePart& part : group.parts) {
      state_bytes += 4 * part.shape.num_elements() * group.num_layers;
    }
  }
  EXPECT_EQ(bytes_per_token, GetParam().bytes_per_token);
  EXPECT_EQ(state_bytes, GetParam().state_bytes);
  const int64_t layers = GetParam().num_cache_layers;
  EXPECT_EQ(needs.num_kv_layers() + needs.num_state_layers(),
            layers > 0 ? layers : config->num_layers);
  EXPECT_EQ(static_cast<int64_t>(needs.windows().size()), needs.num_kv_layers());
  EXPECT_EQ(static_cast<int64_t>(needs.kv_modules.size()), needs.num_kv_layers());
  std::filesystem::remove_all(folder);
}

std::vector<Published> published_configurations() {
  return {{"meta-llama--Llama-2-7b-hf", 6'738'415'616, 524'288},
          {"meta-llama--Llama-2-13b-hf", 13'015'864'320, 819'200},
          {"meta-llama--Llama-2-70b-hf", 68'976'648'192, 327'680},
          {"meta-llama--Meta-Llama-3.1-8B", 8'030'261'248, 131'072},
          {"meta-llama--Meta-Llama-3.1-70B", 70'553'706'496, 327'680},
          {"mlc_presets/llama2_7b", 6'738'415'616, 524'288},
          {"mlc_presets/llama3_1_8b", 8'030'261'248, 131'072},
          {"mlc_presets/llama3_2_1b", 1'235'814'400, 32'768},
          {"mlc_presets/smollm2_135m", 134'515'008, 23'040},
          {"mlc_presets/tinyllama_1b_chat_v1.0", 1'100'048'384, 22'528},
          {"reconstructed/TheBloke--Llama-2-7B-AWQ", 6'738'415'616, 524'288},
          {"mlc_presets/mistral_7b_v03", 7'248'023'552, 131'072},
          {"mlc_presets/phi-4", 3'836'021'760, 131'072},
          {"mlc_presets/gemma3_1b_it", 999'885'952, 26'624},
          {"mlc_presets/qwen2_7b", 7'615'616'512, 57'344},
          {"mlc_presets/qwen2.5_3b", 3'085'938'688, 36'864},
          {"reconstructed/Qwen--Qwen2.5-VL-3B-Instruct", 3'085'938'688, 36'864},
          {"mlc_presets/qwen2moe", 14'315'784'192, 196'608},
          {"mlc_presets/qwen3_0.6b", 596'049'920, 114'688},
          {"Qwen--Qwen3-0.6B", 596'049'920, 114'688},
          {"Qwen--Qwen3-1.7B", 1'720'574'976, 114'688},
          {"Qwen--Qwen3-4B-Thinking-2507", 4'022'468'096, 147'456},
          {"Qwen--Qwen3-8B", 8'190'735'360, 147'456},
          {"reconstructed/Qwen--Qwen3-8B-AWQ", 8'190'735'360, 147'456},
          {"Qwen--Qwen3-32B", 32'762'123'264, 262'144},
          {"Qwen--Qwen3-32B-FP8", 32'762'123'264, 262'144},
          {"Qwen--Qwen3-30B-A3B", 30'532'122'624, 98'304},
          {"Qwen--Qwen3-30B-A3B-FP8", 30'532'122'624, 98'304},
          {"Qwen--Qwen3-235B-A22B", 235'093'634'560, 192'512},
          {"Qwen--Qwen3-235B-A22B-FP8", 235'093'634'560, 192'512},
          {"nvidia--Qwen3-235B-A22B-NVFP4", 235'093'634'560, 192'512},
          {"Qwen--Qwen3-Coder-480B-A35B-Instruct", 480'154'875'392, 253'952},
          {"Qwen--Qwen3-VL-2B-Instruct", 1'720'574'976, 114'688},
          {"Qwen--Qwen3-VL-4B-Instruct", 4'022'468'096, 147'456},
          {"Qwen--Qwen3-VL-30B-A3B-Instruct", 30'532'122'624, 98'304},
          {"Qwen--Qwen3-Next-80B-A3B-Thinking", 79'674'391'296, 24'576, 75'497'472 + 3'538'944},
          {"reconstructed/Qwen--Qwen3-Next-80B-A3B-Instruct", 79'674'391'296, 24'576,
           75'497'472 + 3'538'944},
          {"reconstructed/Qwen--Qwen3-Next-80B-A3B-Instruct-FP8", 79'674'391'296, 24'576,
           75'497'472 + 3'538'944},
          {"Qwen--Qwen3.5-27B", 26'895'998'464, 65'536, 150'994'944 + 5'898'240},
          {"Qwen--Qwen3.5-35B-A3B", 34'660'610'688, 20'480, 62'914'560 + 2'949'120},
          {"Qwen--Qwen3.5-122B-A10B", 122'111'526'912, 24'576, 150'994'944 + 5'308'416},
          {"Qwen--Qwen3.5-397B-A17B", 396'346'350'336, 30'720, 188'743'680 + 6'635'520},
          {"mlc_presets/deepseek_v2_lite", 15'706'484'224, 31'104},
          {"deepseek-ai--DeepSeek-V3", 671'026'419'200, 70'272},
          {"deepseek-ai--DeepSeek-R1", 671'026'419'200, 70'272},
          {"nvidia--DeepSeek-V3.1-NVFP4", 671'026'419'200, 70'272},
          {"moonshotai--Kimi-K2-Instruct", 1'026'408'232'448, 70'272},
          {"reconstructed/moonshotai--Kimi-Linear-48B-A3B-Instruct", 49'122'681'728, 8'064,
           41'943'040 + 2'949'120},
          {"mistralai--Mixtral-8x7B-v0.1", 46'702'792'704, 131'072},
          {"google--gemma-4-26B-A4B", 25'233'141'790, 20'480 + 204'800},
          {"MiniMaxAI--MiniMax-M2.5", 228'689'764'864, 253'952},
          {"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31'577'940'288, 6'144,
           48'234'496 + 2 * 847'872, 29},
          {"openai--gpt-oss-20b", 20'914'757'184, 49'152},
          {"openai--gpt-oss-120b", 116'829'156'672, 73'728}};
}

INSTANTIATE_TEST_SUITE_P(Published, ParameterCount, ::testing::ValuesIn(published_configurations()),
                         [](const auto& published) {
                           std::string name = published.param.config;
                           for (char& c : name) {
                             if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
                           }
                           return name;
                         });

// The configurations there that are not served, by what the refusal says.
TEST(ParameterCount, KnowsEveryPublishedConfiguration) {
  HEDDLE_SHARED_PATH_OR_SKIP(configs, "data/configs");
  std::set<std::string> known;
  for (const Published& published : published_configurations()) known.insert(published.config);
  const std::map<std::string, std::string> refused = {
      {"deepseek-ai--DeepSeek-V3.2", "DeepseekV32ForCausalLM"},
      {"deepseek-ai--DeepSeek-V4-Flash", "DeepseekV4ForCausalLM"},
      {"deepseek-ai--DeepSeek-V4-Pro", "DeepseekV4ForCausalLM"},
      {"meta-llama--Llama-4-Scout-17B-16E-Instruct", "Llama4ForConditionalGeneration"},
      {"moonshotai--Kimi-K3", "KimiK3ForConditionalGeneration"},
      {"zai-org--GLM-5.1", "GlmMoeDsaForCausalLM"},
      {"mlc_presets/gemma2_2b", "Gemma2ForCausalLM"},
      {"mlc_presets/gpt2", "GPT2LMHeadModel"}};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(configs)) {
    std::string name = std::filesystem::relative(entry.path(), configs).string();
    if (!name.ends_with(".json") || name.find("preprocessor") != std::string::npos ||
        name.find("github_inference") != std::string::npos) {
      continue;
    }
    const bool has_suffix = name.ends_with("_config.json");
    name.resize(name.size() - std::string_view(has_suffix ? "_config.json" : ".json").size());
    if (known.contains(name)) continue;
    SCOPED_TRACE(name);
    const auto expected = refused.find(name);
    ASSERT_NE(expected, refused.end()) << "a row is missing";
    const auto text = checkpoint::read_text_file(entry.path(), checkpoint::kMaxConfigBytes);
    ASSERT_TRUE(text.ok());
    EXPECT_THAT(parse_config(*text).status().message(), ::testing::HasSubstr(expected->second));
  }
}

}  // namespace
}  // namespace heddle::models
