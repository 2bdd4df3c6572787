// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "models/small_config_fixture.h"

namespace heddle::models {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::refusal;
using testing::small_config;
using testing::windows_of;

TEST(Mistral, SlidesInEveryLayerWhereTheWindowIsANumber) {
  json config = small_config("MistralForCausalLM");
  EXPECT_THAT(windows_of(config), ElementsAre(0, 0, 0, 0));
  config["sliding_window"] = nullptr;
  EXPECT_THAT(windows_of(config), ElementsAre(0, 0, 0, 0));
  config["sliding_window"] = 24;
  EXPECT_THAT(windows_of(config), ElementsAre(24, 24, 24, 24));
  EXPECT_THAT(testing::model_of(config)->cache_needs().windows(), ElementsAre(24, 24, 24, 24));
  config["layer_types"] = {"sliding_attention", "full_attention", "full_attention",
                           "sliding_attention"};
  EXPECT_THAT(windows_of(config), ElementsAre(24, 0, 0, 24));
  config["sliding_window"] = nullptr;
  EXPECT_THAT(refusal(config).message(), HasSubstr("sliding_window is missing"));
}

}  // namespace
}  // namespace heddle::models
