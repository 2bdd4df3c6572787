// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_view.h"

#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/toy_model.h"

namespace heddle::cache {
namespace {

using request::Sequence;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CacheViewTest : public ::testing::Test {
 protected:
  static PrefixCacheOptions options() {
    PrefixCacheOptions options;
    options.pools.num_pages = 100;
    options.pools.page_size = 4;
    options.pools.num_state_slots = 10;
    options.pools.page_bytes = 256;
    options.pools.flops = testing::kToyFlops;
    options.grid = 8;
    return options;
  }

  static std::vector<TokenId> tokens(TokenId first, int64_t count) {
    std::vector<TokenId> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(first + static_cast<TokenId>(i));
    return tokens;
  }

  static Sequence sequence(std::vector<TokenId> prompt, std::string name_space = {}) {
    Request request;
    request.prompt = std::move(prompt);
    request.cache_namespace = std::move(name_space);
    return {0, std::move(request), 0, std::span<const TokenId>()};
  }

  // Computes the whole prompt, as a request that ends there, and keeps it.
  void keep(std::vector<TokenId> prompt, std::string name_space = {}) {
    Sequence served = sequence(std::move(prompt), std::move(name_space));
    CachedSequence cached;
    ASSERT_TRUE(cache_.admit(served, cache_.match(served), 0, cached));
    served.num_computed = served.num_tokens();
    cache_.release(served, cached, PrefixCache::Keep::kEnd);
  }

  [[nodiscard]] Inspection view(const InspectionOptions& what = {},
                                const Sequence* prompt = nullptr) const {
    Inspection inspection;
    view_cache(cache_, what, prompt, inspection);
    return inspection;
  }

  PrefixCache cache_{options()};
};

TEST_F(CacheViewTest, AnEmptyCacheHasPoolsAndNoNodes) {
  const Inspection seen = view();
  EXPECT_EQ(seen.page_size, 4);
  EXPECT_EQ(seen.kv_pages.total, 100);
  EXPECT_EQ(seen.kv_pages.cached + seen.kv_pages.shared + seen.kv_pages.requests, 0);
  EXPECT_EQ(seen.kv_pages.bytes_each, 256);
  EXPECT_EQ(seen.states.total, 10);
  EXPECT_EQ(seen.window_pages.total, 0);
  EXPECT_TRUE(seen.tree.needs_state);
  EXPECT_THAT(seen.tree.nodes, IsEmpty());
  EXPECT_FALSE(seen.reuse);
}

TEST_F(CacheViewTest, AForkIsANodeWithoutAStateAboveTwoWithOne) {
  std::vector<TokenId> one = tokens(0, 40);
  std::vector<TokenId> other = tokens(0, 24);
  for (const TokenId token : tokens(500, 8)) other.push_back(token);
  keep(one);
  keep(other);

  const Inspection seen = view({.max_node_tokens = 3});
  EXPECT_EQ(seen.tree.num_nodes, 3);
  EXPECT_EQ(seen.tree.num_tokens, 48);
  ASSERT_THAT(seen.tree.nodes, SizeIs(3));
  const PrefixNodeView& fork = seen.tree.nodes[0];
  EXPECT_EQ(fork.parent, 0);
  EXPECT_EQ(fork.begin, 0);
  EXPECT_EQ(fork.num_tokens, 24);
  EXPECT_THAT(fork.tokens, ElementsAre(0, 1, 2));
  EXPECT_EQ(fork.num_children, 2);
  EXPECT_FALSE(fork.has_state);
  const PrefixNodeView& newest = seen.tree.nodes[1];
  EXPECT_EQ(newest.parent, fork.id);
  EXPECT_EQ(newest.begin, 24);
  EXPECT_THAT(newest.tokens, ElementsAre(500, 501, 502));
  EXPECT_TRUE(newest.has_state);
  EXPECT_EQ(newest.locks, 0);
  EXPECT_EQ(newest.idle_ticks, 0);
  EXPECT_EQ(seen.tree.nodes[2].parent, fork.id);
  EXPECT_EQ(seen.tree.num_states, 2);
  EXPECT_EQ(seen.states.cached, 2);
  EXPECT_EQ(seen.kv_pages.cached, 12);
}

TEST_F(CacheViewTest, RunningRequestsLockWhatTheyShare) {
  keep(tokens(0, 40));
  Sequence running = sequence(tokens(0, 60));
  CachedSequence cached;
  ASSERT_TRUE(cache_.admit(running, cache_.match(running), 0, cached));
  const Inspection seen = view();
  ASSERT_THAT(seen.tree.nodes, SizeIs(1));
  EXPECT_EQ(seen.tree.nodes[0].locks, 2) << "its tokens and its state";
  EXPECT_EQ(seen.tree.nodes[0].state_locks, 1);
  EXPECT_EQ(seen.kv_pages.shared, 10);
  EXPECT_EQ(seen.kv_pages.requests, 5);
  EXPECT_EQ(seen.kv_pages.cached, 0);
  EXPECT_EQ(seen.states.requests, 1);
  cache_.release(running, cached, PrefixCache::Keep::kPublished);
  EXPECT_EQ(view().kv_pages.cached, 10);
}

TEST_F(CacheViewTest, ShowsWhereAPromptAgreesAndWhereItCanResume) {
  keep(tokens(0, 40));
  const Sequence longer = sequence(tokens(0, 48));
  const Inspection found = view({}, &longer);
  ASSERT_TRUE(found.reuse);
  EXPECT_EQ(found.reuse->prompt_tokens, 48);
  EXPECT_EQ(found.reuse->matched_tokens, 40);
  EXPECT_EQ(found.reuse->reused_tokens, 40);
  EXPECT_FALSE(found.reuse->exact_repeat);
  EXPECT_THAT(found.reuse->path, ElementsAre(found.tree.nodes.at(0).id));

  std::vector<TokenId> fork = tokens(0, 20);
  fork.push_back(900);
  const Sequence other = sequence(fork);
  const Inspection forked = view({}, &other);
  EXPECT_EQ(forked.reuse->matched_tokens, 20) << "rows are there";
  EXPECT_EQ(forked.reuse->reused_tokens, 0) << "but no state to resume from";

  const Sequence elsewhere = sequence(tokens(0, 48), "tenant");
  EXPECT_EQ(view({}, &elsewhere).reuse->matched_tokens, 0);
  EXPECT_THAT(view({}, &elsewhere).reuse->path, IsEmpty());
}

TEST_F(CacheViewTest, TheNewestNodesAreShownAndThePathOfThePrompt) {
  for (TokenId first = 0; first < 500; first += 100) keep(tokens(first, 8), "space");
  const Inspection newest = view({.max_nodes = 2});
  ASSERT_THAT(newest.tree.nodes, SizeIs(2));
  EXPECT_EQ(newest.tree.num_nodes, 5);
  EXPECT_EQ(newest.tree.nodes[0].tokens.front(), 400);
  EXPECT_EQ(newest.tree.nodes[0].idle_ticks, 0);
  EXPECT_GT(newest.tree.nodes[1].idle_ticks, 0);
  EXPECT_EQ(newest.tree.nodes[1].tokens.front(), 300);
  EXPECT_EQ(newest.tree.nodes[1].name_space, "space");

  const Sequence oldest = sequence(tokens(0, 9), "space");
  const Inspection asked = view({.max_nodes = 2}, &oldest);
  ASSERT_THAT(asked.tree.nodes, SizeIs(2));
  EXPECT_EQ(asked.tree.nodes[0].tokens.front(), 0);
  EXPECT_EQ(asked.tree.nodes[1].tokens.front(), 400);
  EXPECT_THAT(view({.max_nodes = 0}).tree.nodes, IsEmpty());
}

TEST_F(CacheViewTest, OfAVeryWideTreeAPartIsComparedButThePathIsAlwaysShown) {
  PrefixCacheOptions wide = options();
  wide.pools.num_pages = 12000;
  wide.pools.num_state_slots = 0;
  PrefixCache cache(wide);
  constexpr TokenId kNumNodes = 11000;  // more than are compared
  for (TokenId first = 0; first < kNumNodes; ++first) {
    Sequence served = sequence({first, 7, 7, 7});
    CachedSequence cached;
    ASSERT_TRUE(cache.admit(served, cache.match(served), 0, cached));
    served.num_computed = served.num_tokens();
    cache.release(served, cached, PrefixCache::Keep::kEnd);
  }
  const Sequence last = sequence({kNumNodes - 1, 7, 7, 7, 8});
  Inspection seen;
  view_cache(cache, {.max_nodes = 2}, &last, seen);
  EXPECT_EQ(seen.tree.num_nodes, kNumNodes);
  ASSERT_THAT(seen.tree.nodes, SizeIs(2));
  EXPECT_EQ(seen.tree.nodes[0].tokens.front(), kNumNodes - 1);
  EXPECT_LT(seen.tree.nodes[1].tokens.front(), 10000) << "the best of those compared";
  EXPECT_GT(seen.tree.nodes[1].tokens.front(), 9900);
}

}  // namespace
}  // namespace heddle::cache
