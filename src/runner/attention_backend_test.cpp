// SPDX-License-Identifier: Apache-2.0
#include "runner/attention_backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle {
namespace {

TEST(AttentionBackendTest, TakesItsNamesAndThoseOfOthers) {
  for (const char* const name : {"auto", "plain"}) {
    EXPECT_EQ(to_string(*parse_attention_backend(name)), name);
  }
  EXPECT_EQ(*parse_attention_backend("fa3"), AttentionBackend::kAuto);
  EXPECT_EQ(*parse_attention_backend("torch_native"), AttentionBackend::kPlain);
}

TEST(AttentionBackendTest, NamesWhatThereIs) {
  EXPECT_THAT(parse_attention_backend("fast").status().message(),
              ::testing::HasSubstr("auto or plain"));
}

}  // namespace
}  // namespace heddle
