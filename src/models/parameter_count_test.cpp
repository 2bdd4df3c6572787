// SPDX-License-Identifier: Apache-2.0
// Published configurations against the number of parameters their models are known to have: a
// weight that is missing, doubled or of a wrong shape shows here, without a byte of weights.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "models/registry.h"
#include "support/test_data.h"

namespace heddle::models {
namespace {

struct Published {
  const char* config;  // below data/configs/, without "_config.json"
  int64_t parameters;
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
  const int64_t layers = GetParam().num_cache_layers;
  EXPECT_EQ(needs.num_kv_layers() + needs.num_state_layers(),
            layers > 0 ? layers : config->num_layers);
  EXPECT_EQ(static_cast<int64_t>(needs.windows().size()), needs.num_kv_layers());
  EXPECT_EQ(static_cast<int64_t>(needs.kv_modules.size()), needs.num_kv_layers());
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(
    Published, ParameterCount,
    ::testing::Values(
        Published{"meta-llama--Llama-2-7b-hf", 6'738'415'616},
        Published{"meta-llama--Llama-2-13b-hf", 13'015'864'320},
        Published{"meta-llama--Llama-2-70b-hf", 68'976'648'192},
        Published{"meta-llama--Meta-Llama-3.1-8B", 8'030'261'248},
        Published{"meta-llama--Meta-Llama-3.1-70B", 70'553'706'496},
        Published{"mlc_presets/llama3_2_1b", 1'235'814'400},
        Published{"mlc_presets/mistral_7b_v03", 7'248'023'552},
        Published{"mlc_presets/qwen2_7b", 7'615'616'512},
        Published{"Qwen--Qwen3-0.6B", 596'049'920}, Published{"Qwen--Qwen3-1.7B", 1'720'574'976},
        Published{"Qwen--Qwen3-4B-Thinking-2507", 4'022'468'096},
        Published{"Qwen--Qwen3-8B", 8'190'735'360}, Published{"Qwen--Qwen3-32B", 32'762'123'264},
        Published{"Qwen--Qwen3-32B-FP8", 32'762'123'264},
        Published{"Qwen--Qwen3-30B-A3B", 30'532'122'624},
        Published{"Qwen--Qwen3-30B-A3B-FP8", 30'532'122'624},
        Published{"Qwen--Qwen3-235B-A22B", 235'093'634'560},
        Published{"Qwen--Qwen3-Coder-480B-A35B-Instruct", 480'154'875'392},
        Published{"Qwen--Qwen3-Next-80B-A3B-Thinking", 79'674'391'296},
        Published{"reconstructed/Qwen--Qwen3-Next-80B-A3B-Instruct", 79'674'391'296},
        Published{"reconstructed/Qwen--Qwen3-Next-80B-A3B-Instruct-FP8", 79'674'391'296},
        Published{"Qwen--Qwen3.5-27B", 26'895'998'464},
        Published{"Qwen--Qwen3.5-35B-A3B", 34'660'610'688},
        Published{"Qwen--Qwen3.5-122B-A10B", 122'111'526'912},
        Published{"Qwen--Qwen3.5-397B-A17B", 396'346'350'336},
        Published{"mlc_presets/deepseek_v2_lite", 15'706'484'224},
        Published{"deepseek-ai--DeepSeek-V3", 671'026'419'200},
        Published{"deepseek-ai--DeepSeek-R1", 671'026'419'200},
        Published{"moonshotai--Kimi-K2-Instruct", 1'026'408'232'448},
        Published{"reconstructed/moonshotai--Kimi-Linear-48B-A3B-Instruct", 49'122'681'728},
        Published{"mistralai--Mixtral-8x7B-v0.1", 46'702'792'704},
        Published{"google--gemma-4-26B-A4B", 25'233'141'790},
        Published{"MiniMaxAI--MiniMax-M2.5", 228'689'764'864},
        Published{"nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", 31'577'940'288, 29},
        Published{"openai--gpt-oss-20b", 20'914'757'184},
        Published{"openai--gpt-oss-120b", 116'829'156'672}),
    [](const auto& published) {
      std::string name = published.param.config;
      for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
      }
      return name;
    });

}  // namespace
}  // namespace heddle::models
