// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using checkpoint::LayerKind;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::model_of;
using testing::parse;
using testing::refusal;
using testing::small_config;
using ::testing::StartsWith;

json qwen3_5_experts(std::string_view architecture, const json& changes = json::object()) {
  json config = small_config(architecture, {{"num_experts", 8},
                                            {"num_experts_per_tok", 2},
                                            {"moe_intermediate_size", 32},
                                            {"shared_expert_intermediate_size", 48}});
  config.update(changes);
  return config;
}

TEST(Qwen35, KeepsWhatItsLayersNeed) {
  const CacheNeeds needs =
      model_of(small_config("Qwen3_5ForCausalLM", {{"num_hidden_layers", 8},
                                                   {"linear_num_key_heads", 2},
                                                   {"linear_num_value_heads", 6},
                                                   {"linear_key_head_dim", 16},
                                                   {"linear_value_head_dim", 32}}))
          ->cache_needs();
  EXPECT_EQ(needs.num_state_layers(), 6);
  EXPECT_EQ(needs.state_groups[0].parts[0].shape[1], 2 * 2 * 16 + 6 * 32);
  EXPECT_EQ(needs.state_groups[0].parts[1].shape[0], 6);
  EXPECT_THAT(needs.windows(), ElementsAre(0, 0));
}

TEST(Qwen35, ReadsAMultimodalConfiguration) {
  const std::string_view architecture = "Qwen3_5MoeForConditionalGeneration";
  json config = {{"architectures", {architecture}},
                 {"tie_word_embeddings", true},
                 {"vision_config", {{"hidden_size", 7}}},
                 {"text_config", qwen3_5_experts(architecture)}};
  json& text = config["text_config"];
  text["full_attention_interval"] = 2;
  text["norm_topk_prob"] = false;  // not a key of this family: its weights always sum to one
  const checkpoint::ModelConfig parsed = parse(config);
  EXPECT_EQ(parsed.hidden_size, 64);
  EXPECT_TRUE(parsed.tie_word_embeddings);
  EXPECT_TRUE(parsed.moe->normalize_top_k);
  EXPECT_EQ(parsed.moe->shared_intermediate_size, 48);
  EXPECT_EQ(parsed.num_layers_of(LayerKind::kLinearAttention), 2);
  text["layer_types"] = {"linear_attention", "full_attention", "full_attention",
                         "linear_attention"};
  for (const int interval : {2, 0, -3, 100}) {
    text["full_attention_interval"] = interval;
    const checkpoint::ModelConfig listed = parse(config);
    EXPECT_THAT(listed.layer_kinds,
                ElementsAre(LayerKind::kLinearAttention, LayerKind::kFullAttention,
                            LayerKind::kFullAttention, LayerKind::kLinearAttention));
    EXPECT_THAT(listed.notes,
                ElementsAre(AllOf(HasSubstr(fmt::format("full_attention_interval is {}", interval)),
                                  HasSubstr("layer_types is used"))));
  }
  text.erase("layer_types");
  text["full_attention_interval"] = 0;
  EXPECT_THAT(refusal(config).message(),
              HasSubstr("full_attention_interval is 0, which divides no layer's number"));
}

TEST(Qwen35, FindsItsLanguageModelInsideAMultimodalCheckpoint) {
  const auto model = model_of(qwen3_5_experts("Qwen3_5MoeForConditionalGeneration"));
  for (const std::string& name : testing::hub_names(*model)) {
    EXPECT_THAT(name, StartsWith(name == "lm_head.weight" ? "lm_head." : "model.language_model."));
  }
  EXPECT_THAT(model->ignored_prefixes(), ElementsAre("mtp.", "model.visual.", "visual."));
}

TEST(Qwen35, ServesFourArchitectures) {
  for (const std::string head : {"ForCausalLM", "ForConditionalGeneration"}) {
    EXPECT_EQ(parse(small_config("Qwen3_5" + head)).num_moe_layers(), 0);
    EXPECT_EQ(parse(qwen3_5_experts("Qwen3_5Moe" + head)).num_moe_layers(), 4);
  }
}

}  // namespace
}  // namespace heddle::models
