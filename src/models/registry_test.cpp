// SPDX-License-Identifier: Apache-2.0
#include "models/registry.h"

#include <filesystem>
#include <fstream>
#include <set>

#include <gmock/gmock.h>

#include "checkpoint/checkpoint_fixture.h"
#include "models/small_config_fixture.h"
#include "support/test_data.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(Registry, RefusesAnUnservedArchitectureByNameBeforeItsDetails) {
  const checkpoint::testing::TemporaryFolder folder;
  const auto path =
      folder.write("config.json", R"({"architectures":["Mamba"],"hidden_act":"strange"})");
  const Status status = load_config(folder.path()).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(path.string()),
                    HasSubstr("architecture \"Mamba\" is not served by this "
                              "build; served are "),
                    HasSubstr(" DeepseekV2ForCausalLM, "), HasSubstr(", Qwen3NextForCausalLM")));
  EXPECT_EQ(load_config(folder.path() / "none").status().code(), StatusCode::kNotFound);
}

// As transformers' AutoModelForCausalLM, which does not look at `architectures`.
TEST(Registry, FindsAFamilyByItsModelType) {
  json config = testing::small_config("LlamaForCausalLM");
  for (const json& architectures : {json(), json::array(), json("gone")}) {
    config["architectures"] = architectures;
    config["model_type"] = "llama";
    const auto parsed = parse_config(config.dump());
    ASSERT_TRUE(parsed.ok()) << parsed.status().to_string();
    EXPECT_EQ(parsed->architecture, "LlamaForCausalLM");
    EXPECT_EQ(parsed->notes.size(), architectures == "gone" ? 1u : 0u);
  }
  config["architectures"] = {"Qwen2ForCausalLM"};
  const auto mixed = parse_config(config.dump());
  ASSERT_TRUE(mixed.ok()) << mixed.status().to_string();
  EXPECT_EQ(mixed->family, "Llama");
  EXPECT_THAT(mixed->notes,
              ::testing::ElementsAre(HasSubstr("architectures is \"Qwen2ForCausalLM\" and "
                                               "model_type is \"llama\"; model_type is used")));
  config["model_type"] = "unheard_of";
  EXPECT_EQ(parse_config(config.dump())->family, "Qwen2");
  config["architectures"] = json::array();
  EXPECT_THAT(parse_config(config.dump()).status().message(), HasSubstr("\"unheard_of\""));
  config.erase("model_type");
  EXPECT_THAT(parse_config(config.dump()).status().message(),
              HasSubstr("there is no model_type, so the kind of model is unknown"));
}

TEST(Registry, KnowsEveryArchitectureOnce) {
  std::set<std::string_view> names;
  std::set<std::string_view> architectures;
  for (const Family& family : families()) {
    EXPECT_TRUE(names.insert(family.name).second) << family.name;
    EXPECT_FALSE(family.architectures.empty()) << family.name;
    for (const std::string_view architecture : family.architectures) {
      EXPECT_TRUE(architectures.insert(architecture).second) << architecture;
    }
  }
}

TEST(Registry, ListsEveryFolder) {
  size_t folders = 0;
  const auto models = heddle::testing::repository_path("src/models");
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    const auto name = entry.path().filename();
    if (entry.is_directory() && name != "layers" && name != "drafts" && name != "vision") ++folders;
  }
  EXPECT_EQ(families().size(), folders);
}

// Embeddings are looked up by rows and experts multiplied in groups.
TEST(Registry, SaysWhichWeightsMayBeQuantisedAndHow) {
  using checkpoint::Packing;
  for (const char* architecture :
       {"Qwen2ForCausalLM", "Qwen3MoeForCausalLM", "GptOssForCausalLM"}) {
    const auto model = testing::model_of(testing::small_of(architecture));
    for (const auto& spec : model->weight_specs()) {
      SCOPED_TRACE(spec.name);
      const bool of_experts = spec.shape.rank() == 3;
      EXPECT_EQ(spec.packing, spec.name == "embed_tokens" ? Packing::kLookedUp
                              : of_experts                ? Packing::kAlike
                                                          : Packing::kInParts);
    }
  }
}

TEST(Registry, ReadsTheQuantisationThatOlderToolsWriteBesideTheConfiguration) {
  const checkpoint::testing::TemporaryFolder folder;
  folder.write("config.json", testing::small_config("LlamaForCausalLM").dump());
  EXPECT_FALSE(load_config(folder.path())->quantization.has_value());
  folder.write("quantize_config.json", R"({"quant_method": "gptq", "bits": 4, "group_size": 32})");
  const auto config = load_config(folder.path());
  ASSERT_TRUE(config.ok()) << config.status().to_string();
  EXPECT_TRUE(config->quantization.has_value());
  folder.write("quantize_config.json", "{");
  EXPECT_THAT(load_config(folder.path()).status().message(), HasSubstr("quantize_config.json"));
}

TEST(Registry, ReadsEveryModelAtHand) {
  HEDDLE_SHARED_PATH_OR_SKIP(goldens, "golden");
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(goldens)) {
    if (!entry.is_directory()) continue;
    const auto config = load_config(entry.path());
    if (!config.ok()) {
      EXPECT_THAT(config.status().message(), HasSubstr("is not served by this build"));
      continue;
    }
    ++read;
  }
  EXPECT_GE(read, 24);
}

// Either served, or refused because no family builds the architecture.
TEST(Registry, ReadsEveryPublishedConfigurationItKnows) {
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/configs");
  int read = 0;
  for (const auto& entry : std::filesystem::directory_iterator(path)) {
    if (entry.path().extension() != ".json") continue;
    std::ifstream file(entry.path());
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const auto config = parse_config(text);
    if (config.ok()) {
      ++read;
    } else {
      EXPECT_THAT(config.status().message(), StartsWith("architecture")) << entry.path();
    }
  }
  EXPECT_GE(read, 26);
}

}  // namespace
}  // namespace heddle::models
