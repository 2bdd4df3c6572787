// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/same_tokens.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokenizer/testing/tokenizer_fixture.h"

namespace heddle::tokenizer {
namespace {

using testing::byte_level_json;
using ::testing::HasSubstr;
using testing::Json;
using testing::make;

TEST(SameTokensTest, OfOneFileTheyAre) {
  EXPECT_TRUE(check_same_tokens(*make(byte_level_json()), *make(byte_level_json())).ok());
}

TEST(SameTokensTest, TokensThatOnlyOneHasDoNotCount) {
  Json more = byte_level_json();
  more["added_tokens"].push_back(testing::added_token(testing::kThink + 1, "<tool>"));
  Json later = byte_level_json();
  later["added_tokens"].push_back(testing::added_token(testing::kThink + 9, "<later>"));
  EXPECT_TRUE(check_same_tokens(*make(more), *make(later)).ok());
  EXPECT_TRUE(check_same_tokens(*make(byte_level_json()), *make(more)).ok());
  EXPECT_TRUE(check_same_tokens(*make(more), *make(byte_level_json())).ok());
}

TEST(SameTokensTest, TheFirstThatDiffersIsNamed) {
  Json other = byte_level_json();
  other["added_tokens"][1]["content"] = "<|fin|>";
  const Status status = check_same_tokens(*make(byte_level_json()), *make(other));
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("token 271 is \"<|fin|>\", not \"<|end|>\""));
}

}  // namespace
}  // namespace heddle::tokenizer
