// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/module_pattern.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::checkpoint {
namespace {

using ::testing::HasSubstr;

bool matches(std::string_view pattern, std::string_view path) {
  const Result<ModulePattern> compiled = ModulePattern::compile(pattern);
  EXPECT_TRUE(compiled.ok()) << compiled.status().to_string();
  return compiled.ok() && compiled->matches(path);
}

TEST(ModulePatternTest, MatchesFromTheBeginning) {
  EXPECT_TRUE(matches(".*self_attn.*", "model.layers.0.self_attn.q_proj"));
  EXPECT_TRUE(matches("model\\.layers\\.(0|7)\\.", "model.layers.7.mlp"));
  EXPECT_FALSE(matches("self_attn", "model.layers.0.self_attn.q_proj"));
  EXPECT_FALSE(matches("model\\.layers\\.0$", "model.layers.0.mlp"));
  EXPECT_TRUE(matches("", "lm_head"));
}

TEST(ModulePatternTest, ABrokenPatternIsAnError) {
  const Status broken = ModulePattern::compile("a(b").status();
  EXPECT_EQ(broken.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(broken.message(), HasSubstr("\"a(b\""));
  EXPECT_THAT(broken.message(), HasSubstr("at byte 3"));
  EXPECT_FALSE(ModulePattern::compile("((a{60000}){60000}){60000}").ok());
  EXPECT_FALSE(ModulePattern::compile("\\C").ok());
}

TEST(ModulePatternTest, BacktrackingIsBounded) {
  const std::string path(200, 'a');
  EXPECT_FALSE(matches("(a*)*b", path));
  EXPECT_FALSE(matches("(a|aa)+$x", path));
  EXPECT_FALSE(matches("(*LIMIT_MATCH=4000000000)(a+)+b", path));
  EXPECT_FALSE(matches("((a)|(?R))*b", std::string(100000, 'a')));
}

TEST(ModulePatternTest, GlobsEndAtADot) {
  EXPECT_TRUE(glob_matches("lm_head", "lm_head"));
  EXPECT_TRUE(glob_matches("model.layers.0", "model.layers.0.mlp"));
  EXPECT_FALSE(glob_matches("model.layers.1", "model.layers.10.mlp"));
  EXPECT_TRUE(glob_matches("*.mlp.gate", "model.layers.3.mlp.gate"));
  EXPECT_FALSE(glob_matches("*.mlp.gate", "model.layers.3.mlp.gate_proj"));
  EXPECT_TRUE(glob_matches("model.*.self_attn*", "model.layers.3.self_attn.q_proj"));
  EXPECT_TRUE(glob_matches("*", ""));
  EXPECT_TRUE(glob_matches("**a*", "bab"));
  EXPECT_FALSE(glob_matches("a*b", "ac"));
  EXPECT_FALSE(glob_matches("a", ""));
}

TEST(ModulePatternTest, ManyStarsCostNoMoreThanTheProduct) {
  std::string glob;
  for (int i = 0; i < 1000; ++i) glob += "*a";
  EXPECT_FALSE(glob_matches(glob + "b", std::string(2000, 'a')));
  EXPECT_TRUE(glob_matches(glob, std::string(2000, 'a')));
}

}  // namespace
}  // namespace heddle::checkpoint
