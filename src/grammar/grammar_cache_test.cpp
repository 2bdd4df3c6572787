// SPDX-License-Identifier: Apache-2.0
#include "grammar/grammar_cache.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "grammar/json_schema.h"
#include "grammar/testing/mask_fixture.h"

namespace heddle::grammar {
namespace {

TEST(GrammarCacheTest, KeepsWhatWasUsedLast) {
  GrammarCache cache(testing::small_vocabulary());
  const auto source = [](size_t i) {
    return GrammarSource{.kind = GrammarKind::kRegex, .text = fmt::format("a{}", i)};
  };
  const auto first = cache.get(source(0)).value();
  EXPECT_EQ(cache.get(source(0)).value(), first);
  EXPECT_NE(cache.get({.kind = GrammarKind::kRegex, .text = "a0", .free_text_end = "x"}).value(),
            first);
  for (int i = 0; i < 2; ++i) {
    const auto refused = cache.get({.kind = GrammarKind::kRegex, .text = "("});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(cache.size(), 3u) << "errors are kept, too";
  }
  for (size_t i = 1; i <= GrammarCache::kMaxGrammars; ++i) {
    ASSERT_TRUE(cache.get(source(i)).ok());
    ASSERT_EQ(cache.get(source(0)).value(), first);
  }
  EXPECT_EQ(cache.size(), GrammarCache::kMaxGrammars);
}

TEST(GrammarCacheTest, SourcesTogetherAreBounded) {
  GrammarCache cache(testing::small_vocabulary());
  const std::string blanks(kMaxSchemaBytes - 100, ' ');
  constexpr size_t kFit = GrammarCache::kMaxSourceBytes / (kMaxSchemaBytes - 100);
  for (size_t i = 0; i < kFit + 10; ++i) {
    ASSERT_TRUE(cache
                    .get({.kind = GrammarKind::kJsonSchema,
                          .text = fmt::format("{{\"const\": {}}}{}", i, blanks)})
                    .ok());
  }
  EXPECT_GE(cache.size(), kFit - 1);
  EXPECT_LE(cache.size(), kFit);
}

// The names of a client's schema stand in the reasons.
TEST(GrammarCacheTest, ReasonsInTheLogHaveNoControlCharacters) {
  for (const char* const name :
       {"a\\nwarning: forged", "a\\u001b[2J", "a\\r", "a\\u0000", "a\\u007f"}) {
    for (const size_t num_properties : {1U, 30U}) {
      std::string properties;
      for (size_t i = 0; i < num_properties; ++i) {
        properties += fmt::format(R"({}"{}{}": {{"type": "array", "uniqueItems": true}})",
                                  i == 0 ? "" : ", ", name, i);
      }
      GrammarCache cache(testing::small_vocabulary());
      ::testing::internal::CaptureStderr();
      const auto grammar =
          cache.get({.kind = GrammarKind::kStructuralTag,
                     .text = fmt::format(R"({{"format": {{"type": "json_schema", "strict": false,
                                 "json_schema": {{"properties": {{{}}}}}}}}})",
                                         properties)});
      const std::string log = ::testing::internal::GetCapturedStderr();
      ASSERT_TRUE(grammar.ok()) << grammar.status().to_string();
      EXPECT_EQ(std::ranges::count(log, '\n'), num_properties == 1 ? 1 : 21) << log;
      size_t num_shown = 0;
      for (size_t at = log.find("#/properties/a?"); at != std::string::npos;
           at = log.find("#/properties/a?", at + 1)) {
        ++num_shown;
      }
      EXPECT_EQ(num_shown, num_properties == 1 ? 1U : 21U) << log;
    }
  }
}

}  // namespace
}  // namespace heddle::grammar
