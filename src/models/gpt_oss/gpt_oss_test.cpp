// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/gpt_oss/biased_moe.h"
#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::model_of;
using testing::parse;
using testing::windows_of;

json gpt_oss_experts(const json& changes = json::object()) {
  json config = testing::small_of("GptOssForCausalLM");
  config.update(changes);
  return config;
}

TEST(GptOss, FillsInWhatItsFilesLeaveOut) {
  EXPECT_THAT(windows_of(gpt_oss_experts()), ElementsAre(128, 0, 128, 0));
  const checkpoint::ModelConfig config = parse(gpt_oss_experts());
  EXPECT_TRUE(config.attention_bias);
  EXPECT_EQ(config.num_moe_layers(), 4);
  ASSERT_TRUE(config.moe.has_value());
  EXPECT_EQ(config.moe->num_experts, 4);
  EXPECT_EQ(config.moe->intermediate_size, 96);  // intermediate_size is an expert's
  EXPECT_TRUE(config.moe->normalize_top_k);
  EXPECT_EQ(config.own.get<GptOssConfig>().swiglu_limit, 7.0);
  EXPECT_EQ(config.own.get<GptOssConfig>().swiglu_alpha, 1.702);
}

TEST(GptOss, ReadsWhatTheySay) {
  const checkpoint::ModelConfig config = parse(
      gpt_oss_experts({{"swiglu_limit", 5}, {"sliding_window", 16}, {"attention_bias", false}}));
  EXPECT_EQ(config.own.get<GptOssConfig>().swiglu_limit, 5.0);
  EXPECT_EQ(config.sliding_window, 16);
  EXPECT_FALSE(config.attention_bias);
}

TEST(GptOss, KeepsKeysAndValuesInEveryLayer) {
  const CacheNeeds needs =
      model_of(gpt_oss_experts({{"head_dim", 16}, {"sliding_window", 16}}))->cache_needs();
  EXPECT_EQ(needs.num_kv_layers(), 4);
  EXPECT_EQ(needs.page_groups[0].shape.num_heads, 2);
  EXPECT_EQ(needs.page_groups[0].shape.head_dim, 16);
  EXPECT_THAT(needs.windows(), ElementsAre(16, 0, 16, 0));
}

}  // namespace
}  // namespace heddle::models
