// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/cache_workload.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr WorkloadShape kShape = {.vocab_size = 1000, .context_length = 4096};

std::vector<std::string> names_of(const std::vector<Pattern>& patterns) {
  std::vector<std::string> names;
  for (const Pattern& pattern : patterns) names.emplace_back(pattern.name);
  return names;
}

TEST(CacheWorkloadTest, PatternsAreChosenInTheOrderTheyAreNamed) {
  const auto chosen = choose_patterns("unique,shared", 1);
  ASSERT_TRUE(chosen.ok());
  EXPECT_EQ(names_of(*chosen), (std::vector<std::string>{"unique", "shared"}));
  EXPECT_EQ((*chosen)[0].make(kShape).name, "unique prompts");
  EXPECT_TRUE(choose_patterns("", 1)->empty());
}

TEST(CacheWorkloadTest, APatternThatIsNotThereIsAnError) {
  EXPECT_THAT(choose_patterns("shared,best", 4).status().message(),
              AllOf(HasSubstr("--patterns"), HasSubstr("\"best\""), HasSubstr("repeats")));
  EXPECT_THAT(choose_patterns("shared,,chats", 4).status().message(), HasSubstr("\"\""));
}

TEST(CacheWorkloadTest, ProbesComeAtOnceOrNotAtAll) {
  EXPECT_TRUE(choose_patterns("probes", kProbesAtOnce).ok());
  EXPECT_THAT(choose_patterns("shared,probes", kProbesAtOnce - 1).status().message(),
              AllOf(HasSubstr("--concurrency 3"), HasSubstr("raise it to 4")));
  EXPECT_TRUE(choose_patterns("shared", 1).ok());
}

TEST(CacheWorkloadTest, ProbesAreTheSamePromptsInWhatTheySaveAndShare) {
  const Workload workload = probes(kShape);
  const std::vector<WorkloadRequest>& requests = workload.requests;
  ASSERT_EQ(requests.size(), 7u + kProbesAtOnce);
  const std::vector<TokenId>& ab = requests[0].tokens;
  ASSERT_EQ(ab.size(), 2048u);
  const auto shares = [&ab](const std::vector<TokenId>& tokens) {
    return std::ranges::mismatch(ab, tokens).in1 - ab.begin();
  };
  EXPECT_EQ(requests[1].tokens, ab);
  EXPECT_EQ(shares(requests[2].tokens), 1024);
  EXPECT_EQ(requests[3].tokens, ab);
  EXPECT_EQ(shares(requests[4].tokens), 1024);
  EXPECT_EQ(requests[5].tokens, std::vector<TokenId>(ab.begin(), ab.begin() + 1024));
  EXPECT_EQ(shares(requests[6].tokens), 2048);
  EXPECT_GT(requests[6].tokens.size(), ab.size());
  for (const WorkloadRequest& request : requests) {
    EXPECT_FALSE(request.probe.empty());
    EXPECT_LE(std::ssize(request.tokens) + request.max_new_tokens, kShape.context_length);
  }
}

// One after the other, and the last four after the same one: none of them waits for another.
TEST(CacheWorkloadTest, OnlyTheLastProbesComeAtOnce) {
  const std::vector<WorkloadRequest> requests = probes(kShape).requests;
  EXPECT_FALSE(requests[0].after.has_value());
  for (size_t i = 1; i < 7; ++i) EXPECT_EQ(requests[i].after, i - 1);
  const std::vector<TokenId>& first = requests[7].tokens;
  for (size_t i = 7; i < requests.size(); ++i) {
    EXPECT_EQ(requests[i].after, 6u);
    if (i == 7) continue;
    EXPECT_EQ(std::ranges::mismatch(first, requests[i].tokens).in1 - first.begin(), 1536);
    EXPECT_NE(requests[i].tokens, first);
  }
}

TEST(CacheWorkloadTest, ProbesFitASmallContext) {
  WorkloadShape shape = kShape;
  shape.context_length = 512;
  for (const WorkloadRequest& request : probes(shape).requests) {
    EXPECT_LE(std::ssize(request.tokens) + request.max_new_tokens, 512);
  }
}

}  // namespace
}  // namespace heddle::tools
