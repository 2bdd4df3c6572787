// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::parse;
using testing::refusal;
using testing::small_config;

json qwen3_moe_experts(const json& changes = json::object()) {
  json config =
      small_config("Qwen3MoeForCausalLM",
                   {{"num_experts", 8}, {"num_experts_per_tok", 2}, {"moe_intermediate_size", 32}});
  config.update(changes);
  return config;
}

TEST(Qwen3Moe, KnowsBothNamesOfTheNumberOfExperts) {
  json config = qwen3_moe_experts({{"num_local_experts", 8}});
  config.erase("num_experts");
  const checkpoint::ModelConfig parsed = parse(config);
  ASSERT_TRUE(parsed.moe.has_value());
  EXPECT_EQ(parsed.moe->num_experts, 8);
  EXPECT_EQ(parsed.moe->shared_intermediate_size, 0);
  EXPECT_FALSE(parsed.moe->normalize_top_k);  // the family's default
  EXPECT_TRUE(parse(qwen3_moe_experts({{"norm_topk_prob", true}})).moe->normalize_top_k);
}

TEST(Qwen3Moe, MayHaveDenseLayers) {
  EXPECT_THAT(parse(qwen3_moe_experts({{"mlp_only_layers", {0}}})).is_moe_layer,
              ElementsAre(false, true, true, true));
}

TEST(Qwen3Moe, NamesTheKeyItDoesNotServe) {
  const std::vector<std::pair<json, const char*>> cases = {
      {{{"use_sliding_window", true}, {"sliding_window", 24}},
       "sliding_window is 24; Qwen3-MoE is served with attention to all"},
      {{{"shared_expert_intermediate_size", 48}},
       "shared_expert_intermediate_size is 48; Qwen3-MoE is served without it"},
      {{{"scoring_func", "sigmoid"}}, "scoring_func is \"sigmoid\"; Qwen3-MoE is served with"},
      {{{"n_group", 4}}, "n_group is 4; Qwen3-MoE is served with 1 only"},
      {{{"qkv_bias", true}}, "qkv_bias is true; Qwen3-MoE is served without it"},
      {{{"use_qk_norm", false}}, "use_qk_norm is false; Qwen3-MoE is served with these norms"}};
  for (const auto& [changes, message] : cases) {
    const Status status = refusal(qwen3_moe_experts(changes));
    EXPECT_EQ(status.code(), StatusCode::kUnimplemented) << message;
    EXPECT_THAT(status.message(), HasSubstr(message));
  }
}

}  // namespace
}  // namespace heddle::models
