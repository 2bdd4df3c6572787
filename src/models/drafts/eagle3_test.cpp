// SPDX-License-Identifier: Apache-2.0
#include "models/drafts/eagle3.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/safetensors.h"
#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Eagle3ConfigTest : public ::testing::Test {
 protected:
  // For the model of testing::small_config(): 64 wide, 320 tokens, here with 8 layers.
  Result<std::unique_ptr<const DraftModel>> load(const json& changes = json::object()) {
    json config = testing::small_config("LlamaForCausalLMEagle3",
                                        {{"num_hidden_layers", 1}, {"draft_vocab_size", 100}});
    config.update(changes);
    std::ofstream(folder_.path() / "config.json") << config.dump();
    return load_eagle3(folder_.path(), target_);
  }

  checkpoint::testing::TemporaryFolder folder_;
  checkpoint::ModelConfig target_ =
      testing::parse(testing::small_config("LlamaForCausalLM", {{"num_hidden_layers", 8}}));
};

TEST_F(Eagle3ConfigTest, ReadsThreeLayersAndHasAVocabularyOfItsOwn) {
  const auto draft = load().value();
  EXPECT_THAT(draft->hidden_states(), ElementsAre(2, 4, 5));
  EXPECT_EQ(draft->cache_needs().num_kv_layers(), 1);
  std::set<std::string> names;
  for (const auto& spec : draft->weight_specs()) {
    names.insert(spec.alternatives.front().front().tensor.name);
    if (spec.name == "draft.lm_head") {
      EXPECT_EQ(spec.shape, (Shape{100, 64}));
    }
    if (spec.name == "draft.self_attn.qkv_proj") {
      EXPECT_EQ(spec.shape, (Shape{(4 + 2 + 2) * 16, 2 * 64}));
    }
    if (spec.name == "draft.projection") {
      EXPECT_EQ(spec.shape, (Shape{64, 3 * 64}));
    }
  }
  EXPECT_TRUE(names.contains("midlayer.hidden_norm.weight"));
  EXPECT_TRUE(names.contains("lm_head.weight"));
}

TEST_F(Eagle3ConfigTest, AListNamesTheLayersWhoseOutputsItReads) {
  const json list = {{"eagle_config", {{"eagle_aux_hidden_state_layer_ids", {0, 3, 6}}}}};
  EXPECT_THAT(load(list).value()->hidden_states(), ElementsAre(1, 4, 7));
}

TEST_F(Eagle3ConfigTest, WithoutAVocabularyOfItsOwnItSharesTheHead) {
  const auto draft = load({{"draft_vocab_size", nullptr}}).value();
  for (const auto& spec : draft->weight_specs()) EXPECT_NE(spec.name, "draft.lm_head");
}

// The file stores differences between draft and target ids, which are added once.
TEST_F(Eagle3ConfigTest, ItsIdsAreMappedOnce) {
  const auto draft = load().value();
  const auto ids_of = [&](int64_t factor, int64_t last) {
    std::vector<int64_t> differences;
    for (int64_t i = 0; i < 100; ++i) differences.push_back(factor * i);
    differences.back() = last;
    const checkpoint::StoredTensor stored{.name = "d2t",
                                          .stored_dtype = "I64",
                                          .shape = {100},
                                          .bytes = std::as_bytes(std::span(differences))};
    const Status written = checkpoint::write_stored_safetensors(
        folder_.path() / "model.safetensors", {&stored, 1}, {}, {});
    EXPECT_TRUE(written.ok()) << written.to_string();
    return draft->target_ids(checkpoint::CheckpointFiles::open(folder_.path()).value());
  };
  const auto ids = ids_of(2, 2 * 99);
  ASSERT_TRUE(ids.ok()) << ids.status().to_string();
  ASSERT_EQ(ids->size(), 100u);
  for (TokenId own = 0; own < 100; ++own) EXPECT_EQ((*ids)[static_cast<size_t>(own)], 3 * own);
  EXPECT_THAT(
      ids_of(2, 221).status().message(),
      HasSubstr("d2t[99] is 221, but the model has 320 tokens; name a draft of this model"));
  EXPECT_THAT(ids_of(2, -100).status().message(), HasSubstr("d2t[99] is -100"));
  EXPECT_THAT(ids_of(3, 3 * 99).status().message(), HasSubstr("d2t[80] is 240"))
      << "ids of the model in place of differences";
}

TEST_F(Eagle3ConfigTest, NamesASettingThatDoesNotFitTheModel) {
  const std::pair<json, const char*> cases[] = {
      {{{"hidden_size", 128}}, "hidden_size is 128, that of the model 64"},
      {{{"vocab_size", 321}}, "vocab_size is 321, that of the model 320"},
      {{{"target_hidden_size", 128}}, "target_hidden_size is 128; served is hidden_size, 64"},
      {{{"num_hidden_layers", 2}}, "num_hidden_layers is 2; one layer is served"},
      {{{"eagle_config", {{"use_aux_hidden_state", false}}}}, "use_aux_hidden_state is false"},
      {{{"eagle_config", {{"eagle_aux_hidden_state_layer_ids", {1, 3, 7}}}}},
       "reads what leaves layer 7, the model has 8 layers"}};
  for (const auto& [changes, message] : cases) {
    const auto draft = load(changes);
    ASSERT_FALSE(draft.ok()) << message;
    EXPECT_THAT(draft.status().message(), HasSubstr(message));
    EXPECT_THAT(draft.status().message(), HasSubstr("config.json"));
  }
  std::filesystem::remove(folder_.path() / "config.json");
  EXPECT_EQ(load_eagle3(folder_.path(), target_).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace heddle::models
