// SPDX-License-Identifier: Apache-2.0
// Why prompts are computed again: how the tree remembers evicted prefixes, and how PrefixCache
// tells the causes apart.
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cache/prefix_cache.h"
#include "cache/prefix_tree_fixture.h"

namespace heddle::cache {
namespace {

TreeFixtureOptions with_state(bool needs_state) {
  TreeFixtureOptions options;
  options.tree.needs_state = needs_state;
  options.page_size = needs_state ? 1 : 4;
  return options;
}

int64_t usable_once(const TreeFixture& fixture, const Tokens& tokens, std::string_view name = "") {
  const auto most = std::ssize(tokens) - 1;
  const PrefixMatch match = fixture.tree.match(tokens, name, most);
  return fixture.tree.usable_without_eviction(tokens, request::PrefixHashes(tokens, name), match,
                                              most);
}

TEST(GhostTest, AnEvictedStateIsRememberedWhereItWas) {
  TreeFixture fixture(with_state(true));
  const Tokens tokens = fixture.unique(100);
  fixture.insert(tokens, 40);
  fixture.insert(tokens, 80);
  EXPECT_EQ(usable_once(fixture, tokens), 80);
  EXPECT_EQ(fixture.tree.evict_states(2), 2);
  EXPECT_EQ(fixture.match(tokens).usable_tokens, 0);
  EXPECT_EQ(usable_once(fixture, tokens), 80);
  EXPECT_EQ(usable_once(fixture, first(tokens, 80)), 40) << "the last token has to run";
  EXPECT_EQ(usable_once(fixture, joined(first(tokens, 60), fixture.unique(40))), 40);
  EXPECT_EQ(usable_once(fixture, fixture.unique(100)), 0);
  EXPECT_EQ(usable_once(fixture, tokens, "other"), 0) << "another namespace";

  fixture.insert(tokens, 40);  // back again
  EXPECT_EQ(fixture.match(tokens).usable_tokens, 40);
  EXPECT_EQ(usable_once(fixture, tokens), 80);
  fixture.tree.clear();
  EXPECT_EQ(usable_once(fixture, tokens), 0) << "cleared on request, not evicted";
}

// A hash is kept for every 64 tokens: states before, at and behind such a block, and several behind
// one.
TEST(GhostTest, AnEvictedStateIsRememberedWhereverItLies) {
  TreeFixture fixture(with_state(true));
  const Tokens tokens = fixture.unique(400);
  std::vector<int64_t> lengths = {1, 2, 63, 64, 65, 100, 127, 128, 191, 192, 250, 320};
  for (const int64_t length : lengths) fixture.insert(tokens, length);
  const auto count = std::ssize(lengths);
  ASSERT_EQ(fixture.tree.evict_states(count), count);
  EXPECT_EQ(fixture.tree.stats().evicted_states, count);
  EXPECT_EQ(fixture.tree.stats().evicted_tokens, 320);
  for (int64_t length = 400; length > 1; --length) {
    while (!lengths.empty() && lengths.back() >= length) lengths.pop_back();
    ASSERT_EQ(usable_once(fixture, first(tokens, length)), lengths.back()) << length;
  }
}

TEST(GhostTest, AReplacedStateIsNotMissed) {
  TreeFixture fixture(with_state(true));
  const Tokens tokens = fixture.unique(100);
  PrefixNode* const node = fixture.insert(tokens, 40).node;
  fixture.insert(tokens, 80);
  EXPECT_TRUE(fixture.tree.drop_unused_state(node));
  EXPECT_EQ(usable_once(fixture, first(tokens, 60)), 0);
  const Tokens other = fixture.unique(50);
  EXPECT_TRUE(fixture.tree.drop_unused_state(fixture.insert(other).node));
  EXPECT_EQ(fixture.match(other).kv_tokens, 0) << "its leaf went with it";
  EXPECT_EQ(fixture.tree.stats().evicted_states, 0);
  EXPECT_EQ(fixture.tree.stats().evicted_tokens, 0);
}

TEST(GhostTest, WithoutStatesEveryPageBoundaryIsRemembered) {
  TreeFixture fixture(with_state(false));
  const Tokens tokens = fixture.unique(50);
  fixture.insert(tokens);
  EXPECT_GT(fixture.tree.evict_pages(13), 0);
  EXPECT_EQ(usable_once(fixture, tokens), 48);
  EXPECT_EQ(usable_once(fixture, joined(first(tokens, 31), fixture.unique(9))), 28);
}

// A set of fixed size forgets, but never takes one prefix for another.
TEST(GhostTest, RandomPrefixesAgreeWithWhatWasEvicted) {
  std::mt19937 random(7);
  TreeFixtureOptions options = with_state(true);
  options.num_states = 12;
  TreeFixture fixture(options);
  std::vector<Tokens> inserted;
  int64_t hits = 0;
  int64_t exact = 0;
  for (int round = 0; round < 400; ++round) {
    Tokens tokens;
    if (!inserted.empty() && random() % 2 == 0) {
      tokens = inserted[random() % inserted.size()];
      tokens.resize(1 + random() % tokens.size());
    }
    for (size_t more = 1 + random() % 20; more > 0; --more) {
      tokens.push_back(static_cast<TokenId>(random() % 3));
    }
    int64_t longest = 0;
    for (const Tokens& other : inserted) {
      if (other.size() >= tokens.size()) continue;
      if (std::equal(other.begin(), other.end(), tokens.begin())) {
        longest = std::max<int64_t>(longest, std::ssize(other));
      }
    }
    const int64_t once = usable_once(fixture, tokens);
    ASSERT_LE(once, longest) << "round " << round;
    exact += once == longest ? 1 : 0;
    hits += once > fixture.tree.match(tokens, "", std::ssize(tokens) - 1).usable_tokens ? 1 : 0;
    if (fixture.states.num_free() == 0) fixture.tree.evict_states(1);
    fixture.insert(tokens);
    inserted.push_back(std::move(tokens));
  }
  EXPECT_GT(hits, 100);
  EXPECT_GT(exact, 300);  // of 400: the smallest set has room for 1,024 hashes
}

PrefixCacheOptions cache_options(bool needs_state) {
  PrefixCacheOptions options;
  options.pools.num_pages = 100;
  options.pools.page_size = 4;
  options.pools.num_state_slots = needs_state ? 3 : 0;
  options.grid = 8;
  options.decode_interval = 16;
  options.eviction = EvictionPolicy::kLru;
  return options;
}

request::Sequence sequence_of(int64_t num_tokens) {
  Request request;
  for (int64_t i = 0; i < num_tokens; ++i) request.prompt.push_back(static_cast<TokenId>(i));
  return {1, std::move(request), 0, {}};
}

std::string loss_of(const PrefixCache& cache, int64_t num_tokens, const PrefixMatch& match) {
  const CacheLoss lost = cache.loss(sequence_of(num_tokens), match);
  return fmt::format("{} {} {} {}", lost.eviction, lost.missing_state, lost.grid, lost.last_token);
}

TEST(CacheLossTest, TellsCausesApartByWhereTheyLie) {
  const PrefixCache cache(cache_options(true));  // a grid of 8
  EXPECT_EQ(loss_of(cache, 50, {}), "0 0 0 0");
  EXPECT_EQ(loss_of(cache, 50, {.usable_tokens = 24, .kv_tokens = 24}), "0 0 0 0");
  EXPECT_EQ(loss_of(cache, 50, {.usable_tokens = 24, .kv_tokens = 29}), "0 0 5 0");
  EXPECT_EQ(loss_of(cache, 50, {.usable_tokens = 8, .kv_tokens = 29}), "0 16 5 0");
  EXPECT_EQ(loss_of(cache, 50, {.usable_tokens = 27, .kv_tokens = 29}), "0 0 2 0")
      << "off the grid";
  EXPECT_EQ(loss_of(cache, 29, {.usable_tokens = 24, .kv_tokens = 29}), "0 0 4 1");
  EXPECT_EQ(loss_of(cache, 25, {.usable_tokens = 24, .kv_tokens = 25}), "0 0 0 1");
}

TEST(CacheLossTest, WithoutStatesOnlyPagesCutAMatch) {
  const PrefixCache cache(cache_options(false));  // pages of 4
  EXPECT_EQ(loss_of(cache, 50, {.usable_tokens = 28, .kv_tokens = 31}), "0 0 3 0");
  EXPECT_EQ(loss_of(cache, 32, {.usable_tokens = 28, .kv_tokens = 32}), "0 0 3 1");
}

TEST(CacheLossTest, NothingIsLostThatWasNotKept) {
  PrefixCacheOptions options = cache_options(true);
  options.enabled = false;
  EXPECT_EQ(loss_of(PrefixCache(options), 29, {.usable_tokens = 24, .kv_tokens = 29}), "0 0 0 0");
}

}  // namespace
}  // namespace heddle::cache
