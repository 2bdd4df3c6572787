// SPDX-License-Identifier: Apache-2.0
// How much of what two requests share is computed once, over long prompts that part anywhere.
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/scheduler_fixture.h"

namespace heddle::scheduler {
namespace {

using ::testing::IsEmpty;

// A state costs as much as 196 pages of 16 tokens: the proportions of an 80B hybrid model.
BatchSchedulerOptions long_prompts(int64_t num_pages, int64_t num_slots) {
  BatchSchedulerOptions options;
  options.cache.pools.num_pages = num_pages;
  options.cache.pools.page_size = 16;
  options.cache.pools.num_state_slots = num_slots;
  options.cache.pools.keeps_hidden = true;
  options.cache.pools.page_bytes = 16 * 24576;
  options.cache.pools.state_slot_bytes = 77266944;
  options.cache.pools.flops = testing::kToyFlops;
  options.max_running = 8;
  options.limits.max_tokens = 2048;
  options.chunked_prefill_tokens = 2048;
  return options;
}

class ReuseTest : public ::testing::Test {
 protected:
  std::vector<TokenId> random_tokens(int64_t count) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(random_() % 250));
    return tokens;
  }

  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }

  // Asks `count` prompts of 2 to 8 thousand tokens, each followed by one that parts from it at a
  // random token beyond the first thousand. Returns reused / shared.
  double share_of_forks_reused(SchedulerFixture& fixture, int count) {
    fixture.proves = false;
    int64_t shared = 0;
    int64_t reused = 0;
    for (int i = 0; i < count; ++i) {
      std::vector<TokenId> prompt = random_tokens(between(2000, 8000));
      fixture.ask(prompt, 4);
      const int64_t fork = between(1000, std::ssize(prompt) - 1);
      prompt.resize(static_cast<size_t>(fork));
      const std::vector<TokenId> rest = random_tokens(200);
      prompt.insert(prompt.end(), rest.begin(), rest.end());
      shared += fork;
      reused += std::min(fixture.ask(prompt, 4), fork);
    }
    fixture.scheduler->check_invariants();
    EXPECT_THAT(fixture.runner.complaints(), IsEmpty());
    return static_cast<double>(reused) / static_cast<double>(shared);
  }

  std::mt19937 random_{7};
};

TEST_F(ReuseTest, ForksAnywhereInLongPromptsReuseNearlyAllTheyShare) {
  SchedulerFixture fixture(long_prompts(100 * 1100, 8000));
  EXPECT_GE(share_of_forks_reused(fixture, 100), 0.95);
}

TEST_F(ReuseTest, ForksStillReuseMostUnderEviction) {
  SchedulerFixture fixture(long_prompts(10000, 128));
  fixture.proves = false;
  for (int i = 0; i < 40; ++i)
    fixture.ask(random_tokens(between(2000, 8000)), 4);  // fills the pools
  ASSERT_GT(fixture.scheduler->stats().cache.evicted_states, 100);
  EXPECT_GE(share_of_forks_reused(fixture, 100), 0.80);
}

TEST_F(ReuseTest, ForksReuseMostWhenPagesAndStatesShareAFullBudget) {
  BatchSchedulerOptions options = long_prompts(30000, 200);
  options.cache.pools.shared_bytes = 128 * options.cache.pools.state_slot_bytes;  // or 25,000 pages
  SchedulerFixture fixture(options);
  fixture.proves = false;
  for (int i = 0; i < 40; ++i) fixture.ask(random_tokens(between(2000, 8000)), 4);
  ASSERT_GT(fixture.scheduler->stats().cache.evicted_states, 100);
  EXPECT_GE(share_of_forks_reused(fixture, 100), 0.80);
}

}  // namespace
}  // namespace heddle::scheduler
