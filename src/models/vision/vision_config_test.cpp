// SPDX-License-Identifier: Apache-2.0
#include "models/vision/vision_config.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/mapped_file.h"
#include "models/small_config_fixture.h"
#include "models/vision/vision_tower.h"
#include "support/test_data.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kWithTable = "Qwen3VLForConditionalGeneration";
constexpr const char* kWithWindows = "Qwen2_5_VLForConditionalGeneration";

json vision_of(const char* architecture, const json& changes = json::object()) {
  json vision = {{"depth", 4},
                 {"hidden_size", 96},
                 {"intermediate_size", 128},
                 {"num_heads", 4},
                 {"out_hidden_size", 64},
                 {"patch_size", 14},
                 {"deepstack_visual_indexes", json::array()},
                 {"fullatt_block_indexes", {3}}};
  vision.update(changes);
  return {{"architectures", {architecture}},
          {"image_token_id", 300},
          {"text_config", testing::small_config(architecture)},
          {"vision_config", vision}};
}

VisionConfig read(const json& config) {
  const auto tower = parse_vision_tower(config.dump());
  EXPECT_TRUE(tower.ok()) << tower.status().to_string();
  return tower.ok() ? (*tower)->config() : VisionConfig();
}

TEST(VisionConfig, ReadsBothFormsOfTowers) {
  const VisionConfig table = read(vision_of(
      kWithTable,
      {{"num_position_embeddings", 64}, {"deepstack_visual_indexes", {1, 3}}, {"patch_size", 16}}));
  EXPECT_EQ(table.form, TowerForm::kTable);
  EXPECT_EQ(table.table_side, 8);
  EXPECT_EQ(table.head_dim(), 24);
  EXPECT_EQ(table.patch_values(), 1536);
  EXPECT_EQ(table.feature_width(), 3 * 64);
  EXPECT_THAT(table.deep_blocks, ElementsAre(1, 3));
  EXPECT_EQ(table.image_token, 300);
  const VisionConfig windows =
      read(vision_of(kWithWindows, {{"window_size", 112}, {"fullatt_block_indexes", {0, 2}}}));
  EXPECT_EQ(windows.form, TowerForm::kWindows);
  EXPECT_EQ(windows.window, 4);
  EXPECT_THAT(windows.whole_blocks, ElementsAre(0, 2));
  EXPECT_THAT(windows.deep_blocks, IsEmpty());
}

TEST(VisionConfig, NamesWhatIsNotServed) {
  const auto refusal = [](const char* architecture, const json& changes) {
    return parse_vision_tower(vision_of(architecture, changes).dump()).status().to_string();
  };
  for (const auto& [changes, message] : std::vector<std::pair<json, const char*>>{
           {{{"depth", nullptr}}, "depth is missing"},
           {{{"hidden_size", 98}}, "hidden_size is 98, which num_heads = 4 does not divide"},
           {{{"hidden_size", 80}}, "num_heads is 4; heads of 20 channels"},
           {{{"num_heads", 0}}, "num_heads is 0"},
           {{{"in_channels", 4}}, "in_channels is 4; towers are served for pictures of 3 channels"},
           {{{"hidden_act", "gelu"}}, "served with \"gelu_pytorch_tanh\""},
           {{{"num_position_embeddings", 63}}, "num_position_embeddings is 63, which is not"},
           {{{"deepstack_visual_indexes", nullptr}}, "deepstack_visual_indexes is"},
           {{{"deepstack_visual_indexes", {1, 4}}}, "but depth is 4"},
           {{{"deepstack_visual_indexes", {2, 1}}}, "larger than the one before it"},
           {{{"out_hidden_size", 65}}, "out_hidden_size is 65, but the language model is 64 wide"},
           {{{"rope_parameters", {{"rope_type", "yarn"}}}}, "rope_type is \"yarn\""},
           {{{"patch_size", 1000}}, "patch_size is 1000"}}) {
    EXPECT_THAT(refusal(kWithTable, changes), HasSubstr(message));
    EXPECT_THAT(refusal(kWithTable, changes), HasSubstr("vision_config: "));
  }
  EXPECT_THAT(refusal(kWithTable, {{"depth", 6}, {"deepstack_visual_indexes", {0, 1, 2, 3, 4}}}),
              HasSubstr("more blocks than the 4 layers"));
  EXPECT_THAT(refusal(kWithWindows, {{"window_size", 100}}),
              HasSubstr("window_size is 100, not a multiple of the 28 pixels"));
  EXPECT_THAT(refusal(kWithWindows, {{"hidden_act", "gelu"}}), HasSubstr("served with \"silu\""));
  EXPECT_THAT(refusal(kWithWindows, {{"fullatt_block_indexes", {7}}}), HasSubstr("but depth is 4"));
  json without = vision_of(kWithWindows);
  without["vision_config"].erase("fullatt_block_indexes");
  EXPECT_THAT(parse_vision_tower(without.dump()).status().message(),
              HasSubstr("fullatt_block_indexes is absent, but must list blocks"));
}

TEST(VisionConfig, NeedsThePlaceholderOfPictures) {
  json config = vision_of(kWithTable);
  config["image_token_id"] = 320;
  EXPECT_THAT(parse_vision_tower(config.dump()).status().message(),
              HasSubstr("image_token_id is 320, outside 0 to 319"));
  config.erase("image_token_id");
  EXPECT_THAT(parse_vision_tower(config.dump()).status().message(),
              HasSubstr("image_token_id is missing"));
}

TEST(VisionConfig, NamesModelsWithoutATowerThatIsServed) {
  const auto complaint = [](const json& config) {
    return parse_vision_tower(config.dump()).status();
  };
  json text = testing::small_config("LlamaForCausalLM");
  EXPECT_THAT(complaint(text).message(), HasSubstr("LlamaForCausalLM\" reads text only"));
  json no_tower = vision_of(kWithTable);
  no_tower["vision_config"] = nullptr;
  EXPECT_EQ(complaint(no_tower).code(), StatusCode::kNotFound);
  EXPECT_THAT(complaint(no_tower).message(), HasSubstr("there is no vision_config, or it is null"));
  text["vision_config"] = json::object();
  EXPECT_EQ(complaint(text).code(), StatusCode::kUnimplemented);
  EXPECT_THAT(complaint(text).message(), HasSubstr("the vision tower of \"LlamaForCausalLM\""));
  text["vision_config"] = 7;
  EXPECT_THAT(complaint(text).message(), HasSubstr("vision_config is 7"));
}

// A weight that is missing or of a wrong shape would change the sum.
TEST(VisionConfig, PublishedTowersHaveTheirNumbersOfParameters) {
  HEDDLE_SHARED_PATH_OR_SKIP(configs, "data/configs");
  for (const auto& [name, parameters] : std::vector<std::pair<const char*, int64_t>>{
           {"Qwen--Qwen3-VL-2B-Instruct", 406'957'056},
           {"Qwen--Qwen3-VL-4B-Instruct", 415'347'712},
           {"Qwen--Qwen3.5-27B", 460'730'096},
           {"Qwen--Qwen3.5-35B-A3B", 446'571'248},
           {"reconstructed/Qwen--Qwen2.5-VL-3B-Instruct", 3'754'622'976 - 3'085'938'688}}) {
    const auto text = checkpoint::read_text_file(configs / (std::string(name) + "_config.json"),
                                                 checkpoint::kMaxConfigBytes);
    ASSERT_TRUE(text.ok());
    const auto tower = parse_vision_tower(*text);
    ASSERT_TRUE(tower.ok()) << name << ": " << tower.status().to_string();
    int64_t sum = 0;
    for (const auto& spec : (*tower)->weight_specs()) sum += spec.shape.num_elements();
    EXPECT_EQ(sum, parameters) << name;
  }
}

}  // namespace
}  // namespace heddle::models
