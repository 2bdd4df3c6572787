// SPDX-License-Identifier: Apache-2.0
#include "models/drafts/eagle.h"

#include <fstream>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_fixture.h"
#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class EagleConfigTest : public ::testing::Test {
 protected:
  // For the model of testing::small_config(): 64 wide, 320 tokens.
  Result<std::unique_ptr<const DraftModel>> load(const json& changes = json::object()) {
    json config = testing::small_config("LlamaForCausalLM", {{"num_hidden_layers", 1}});
    config.update(changes);
    std::ofstream(folder_.path() / "config.json") << config.dump();
    return load_eagle(folder_.path(), testing::parse(testing::small_config("LlamaForCausalLM")));
  }

  static std::set<std::string> hub_names(const DraftModel& draft) {
    std::set<std::string> names;
    for (const auto& spec : draft.weight_specs()) {
      for (const auto& piece : spec.alternatives.front()) names.insert(piece.tensor.name);
    }
    return names;
  }

  checkpoint::testing::TemporaryFolder folder_;
};

TEST_F(EagleConfigTest, ReadsWhatTheHeadReadsAndHasOneNorm) {
  const auto draft = load().value();
  EXPECT_THAT(draft->hidden_states(), ElementsAre(4));
  EXPECT_EQ(draft->cache_needs().num_kv_layers(), 1);
  EXPECT_THAT(hub_names(*draft),
              ElementsAre("fc.bias", "fc.weight", "layers.0.mlp.down_proj.weight",
                          "layers.0.mlp.gate_proj.weight", "layers.0.mlp.up_proj.weight",
                          "layers.0.post_attention_layernorm.weight",
                          "layers.0.self_attn.k_proj.weight", "layers.0.self_attn.o_proj.weight",
                          "layers.0.self_attn.q_proj.weight", "layers.0.self_attn.v_proj.weight"));
}

TEST_F(EagleConfigTest, TheFileSaysWhichBiasesThereAre) {
  EXPECT_FALSE(hub_names(*load({{"bias", false}}).value()).contains("fc.bias"));
  for (const bool of_output : {false, true}) {  // with either key, and with both
    const auto names =
        hub_names(*load({{"qkv_bias", true}, {"attention_bias", of_output}}).value());
    EXPECT_TRUE(names.contains("layers.0.self_attn.k_proj.bias"));
    EXPECT_EQ(names.contains("layers.0.self_attn.o_proj.bias"), of_output);
  }
  EXPECT_TRUE(hub_names(*load({{"attention_bias", true}}).value())
                  .contains("layers.0.self_attn.k_proj.bias"));
}

TEST_F(EagleConfigTest, NamesASettingThatDoesNotFitTheModel) {
  const std::pair<json, const char*> cases[] = {
      {{{"hidden_size", 128}}, "hidden_size is 128, that of the model 64"},
      {{{"vocab_size", 321}}, "vocab_size is 321, that of the model 320"},
      {{{"num_hidden_layers", 2}}, "num_hidden_layers is 2; one layer is served"},
      {{{"draft_vocab_size", 100}}, "use --speculative-algorithm eagle3"}};
  for (const auto& [changes, message] : cases) {
    const auto draft = load(changes);
    ASSERT_FALSE(draft.ok()) << message;
    EXPECT_THAT(draft.status().message(), HasSubstr(message));
    EXPECT_THAT(draft.status().message(), HasSubstr("config.json"));
  }
}

}  // namespace
}  // namespace heddle::models
