// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::parse;

json qwen3_moe_experts(const json& changes = json::object()) {
  json config = testing::small_of("Qwen3MoeForCausalLM");
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

}  // namespace
}  // namespace heddle::models
