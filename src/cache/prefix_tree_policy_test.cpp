// SPDX-License-Identifier: Apache-2.0
// How many tokens returning conversations reuse under each eviction order.
#include <gtest/gtest.h>

#include "cache/prefix_tree.h"
#include "cache/prefix_tree_fixture.h"

namespace heddle::cache {
namespace {

// Qwen3-Next's sizes, in pages of 16 tokens.
constexpr int64_t kPageBytes = 16 * 24576;
constexpr int64_t kStateBytes = 77266944;

TreeFixtureOptions pool(int64_t num_states, EvictionPolicy eviction = EvictionPolicy::kFlops) {
  return {.page_size = 16,
          .num_pages = 60000,
          .num_states = num_states,
          .tree = {.eviction = eviction, .page_bytes = kPageBytes, .state_bytes = kStateBytes}};
}

void insert_with_room(TreeFixture& fixture, const Tokens& tokens, int64_t length) {
  fixture.checks = false;  // costs as much as the pools are large
  const int64_t pages = fixture.pages.pages_for(length) - fixture.pages.num_free();
  if (pages > 0) (void)fixture.tree.evict_pages(pages);
  if (fixture.states.num_free() == 0) {
    EXPECT_EQ(fixture.tree.evict_states(1), 1);
  }
  fixture.insert(tokens, length);
}

// Returns how many tokens were reused.
int64_t serve(TreeFixture& fixture, const Tokens& prompt) {
  const auto length = std::ssize(prompt);
  const PrefixMatch match = fixture.tree.match(prompt, "", length - 1);
  fixture.tree.touch(match.resume);
  const int64_t reused = match.usable_tokens;
  PrefixLock lock = fixture.tree.lock(match.resume, true);
  insert_with_room(fixture, prompt, length);
  fixture.tree.unlock(lock);
  return reused;
}

TEST(PrefixTreePolicyTest, AForkOfAThinnedChainStillReusesMost) {
  for (const EvictionPolicy policy : {EvictionPolicy::kFlops, EvictionPolicy::kLru}) {
    TreeFixture fixture(pool(16, policy));
    const Tokens chain = fixture.unique(32768);
    for (int64_t length = 256; length <= 32768; length += 256) {
      insert_with_room(fixture, chain, length);
    }
    const int64_t reused = fixture.match(first(chain, 8192)).usable_tokens;
    if (policy == EvictionPolicy::kFlops) {
      EXPECT_GE(reused, 8192 / 2) << fixture.tree.to_string();
      EXPECT_EQ(fixture.match(chain).usable_tokens, 32768);
    } else {
      EXPECT_EQ(reused, 0);  // the oldest went first
    }
  }
}

TEST(PrefixTreePolicyTest, StatesInTheMiddleOfAChainGoBeforeForksAndTails) {
  TreeFixture fixture(pool(100));
  const Tokens chain = fixture.unique(3072);
  for (const int64_t length : {1024, 2048, 3072}) fixture.insert(chain, length);
  fixture.insert(joined(first(chain, 1024), fixture.unique(2048)));
  EXPECT_EQ(fixture.tree.evict_states(1), 1);
  EXPECT_EQ(fixture.tree.to_string(), "[0,1024)@1024\n  [1024,3072)@3072\n  [1024,3072)@3072\n");
}

TEST(PrefixTreePolicyTest, ADeepConversationSurvivesAFloodOfShortPrompts) {
  const auto left_after_the_flood = [](EvictionPolicy policy) {
    TreeFixture fixture(pool(32, policy));
    const Tokens deep = fixture.unique(16384);
    fixture.insert(deep);
    for (int i = 0; i < 100; ++i) insert_with_room(fixture, fixture.unique(200), 200);
    return fixture.match(deep).usable_tokens;
  };
  EXPECT_EQ(left_after_the_flood(EvictionPolicy::kFlops), 16384);
  EXPECT_EQ(left_after_the_flood(EvictionPolicy::kLru), 0);
}

TEST(PrefixTreePolicyTest, AStateThatIsNeverUsedAgainGoesInTheEnd) {
  TreeFixture fixture(pool(32));
  const Tokens deep = fixture.unique(16384);
  fixture.insert(deep);
  for (int i = 0; i < 2000; ++i) insert_with_room(fixture, fixture.unique(200), 200);
  EXPECT_EQ(fixture.match(deep).kv_tokens, 0);
}

// Clients take turns in an order that varies; each turn adds a question and an answer, and leaves a
// state at the end of each.
double hit_rate_of_many_conversations(EvictionPolicy policy) {
  constexpr size_t kClients = 128;
  TreeFixture fixture(pool(160, policy));
  std::vector<Tokens> histories(kClients);
  for (Tokens& history : histories) history = fixture.unique(200);
  uint32_t random = 1;
  int64_t reused = 0;
  int64_t asked = 0;
  for (int turn = 0; turn < 8 * static_cast<int>(kClients); ++turn) {
    random = random * 1664525u + 1013904223u;
    Tokens& history = histories[(random >> 8) % kClients];
    history = joined(history, fixture.unique(64));
    reused += serve(fixture, history);
    asked += std::ssize(history);
    history = joined(history, fixture.unique(128));
    serve(fixture, history);
  }
  fixture.tree.check_invariants(true);
  return static_cast<double>(reused) / static_cast<double>(asked);
}

TEST(PrefixTreePolicyTest, ManyConversationsReuseMoreThanByRecency) {
  const double by_work = hit_rate_of_many_conversations(EvictionPolicy::kFlops);
  const double by_recency = hit_rate_of_many_conversations(EvictionPolicy::kLru);
  RecordProperty("by_work", std::to_string(by_work));
  RecordProperty("by_recency", std::to_string(by_recency));
  EXPECT_GE(by_work, by_recency + 0.1) << by_recency;
}

}  // namespace
}  // namespace heddle::cache
