// SPDX-License-Identifier: Apache-2.0
#include "models/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/test_data.h"

namespace heddle::models {
namespace {

using ::testing::HasSubstr;

checkpoint::ModelConfig config_of(const std::filesystem::path& folder) {
  auto config = checkpoint::load_model_config(folder);
  EXPECT_TRUE(config.ok()) << config.status().to_string();
  return std::move(*config);
}

int64_t parameters_of(const checkpoint::ModelConfig& config) {
  const auto model = create_model(config);
  EXPECT_TRUE(model.ok()) << model.status().to_string();
  int64_t total = 0;
  for (const auto& spec : (*model)->weight_specs()) total += spec.shape.num_elements();
  return total;
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
  config = good;
  config.quantization_method = "awq";
  EXPECT_THAT(create_model(config).status().message(), HasSubstr("quant_method \"awq\""));
}

TEST(Qwen3Next, KeepsWhatItsLayersNeed) {
  const auto model = create_model(config_of(testing::repository_path("models/heddle-tiny")));
  ASSERT_TRUE(model.ok());
  const CacheNeeds needs = (*model)->cache_needs();
  EXPECT_EQ(needs.num_kv_layers, 2);
  EXPECT_EQ(needs.num_state_layers, 6);
  EXPECT_EQ(needs.conv_channels, 2 * 2 * 128 + 4 * 128);
}

TEST(Qwen3Next, HasThePublishedNumberOfParameters) {
  HEDDLE_SHARED_PATH_OR_SKIP(configs, "data/configs");
  const std::filesystem::path file = configs / "Qwen--Qwen3-Next-80B-A3B-Thinking_config.json";
  const std::filesystem::path folder =
      std::filesystem::path(::testing::TempDir()) / "qwen3_next_80b";
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(file, folder / "config.json",
                             std::filesystem::copy_options::overwrite_existing);
  EXPECT_EQ(parameters_of(config_of(folder)), 79'674'391'296);
}

}  // namespace
}  // namespace heddle::models
