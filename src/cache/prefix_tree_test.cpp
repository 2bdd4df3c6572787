// SPDX-License-Identifier: Apache-2.0
#include "cache/prefix_tree.h"

#include <gtest/gtest.h>

#include "cache/prefix_tree_test_bench.h"

namespace heddle::cache {
namespace {

class PrefixTreeTest : public ::testing::TestWithParam<int32_t> {};

INSTANTIATE_TEST_SUITE_P(PageSizes, PrefixTreeTest, ::testing::Values(1, 4, 16, 64));

TEST_P(PrefixTreeTest, ResumesWhereAStateWasKept) {
  TreeBench bench({.page_size = GetParam()});
  const Tokens prompt = bench.unique(100);
  bench.insert(prompt, 64);
  bench.insert(prompt, 90);
  EXPECT_EQ(bench.tree.to_string(), "[0,64)@64\n  [64,90)@90\n");
  EXPECT_EQ(bench.match(prompt).usable_tokens, 90);
  EXPECT_EQ(bench.match(prompt).kv_tokens, 90);
  EXPECT_EQ(bench.tree.match(prompt, "", 89).usable_tokens, 64);
  EXPECT_EQ(bench.tree.match(prompt, "", 63).usable_tokens, 0);
  EXPECT_EQ(bench.tree.match(prompt, "", 63).resume, nullptr);
  EXPECT_EQ(bench.tree.match(prompt, "", 63).kv_tokens, 90);
}

TEST_P(PrefixTreeTest, GivesEverythingBackWhenItIsCleared) {
  TreeBench bench({.page_size = GetParam()});
  const Tokens prompt = bench.unique(100);
  for (const int64_t length : {50, 33, 100, 70}) bench.insert(prompt, length);
  bench.insert(joined(first(prompt, 37), bench.unique(20)));
  EXPECT_EQ(bench.tree.stats().states, 5);
  bench.tree.check_invariants(true);
  bench.tree.clear();
  bench.tree.check_invariants(true);
  EXPECT_EQ(bench.tree.to_string(), "");
  EXPECT_EQ(bench.tree.stats().num_tokens, 0);
  EXPECT_EQ(bench.tree.stats().evicted_tokens, 0) << "not for want of room";
  EXPECT_EQ(bench.tree.stats().evicted_states, 0);
  EXPECT_EQ(bench.pages.num_used(), 0);
  EXPECT_EQ(bench.states.num_used(), 0);
}

TEST_P(PrefixTreeTest, MatchingChangesNothing) {
  TreeBench bench({.page_size = GetParam()});
  const Tokens prompt = bench.unique(100);
  bench.insert(prompt);
  const uint64_t epoch = bench.tree.epoch();
  EXPECT_EQ(bench.match(first(prompt, 40)).kv_tokens, 40);
  EXPECT_EQ(bench.match(joined(first(prompt, 40), bench.unique(5))).kv_tokens, 40);
  EXPECT_EQ(bench.tree.to_string(), "[0,100)@100\n");
  EXPECT_EQ(bench.tree.epoch(), epoch);
}

TEST_P(PrefixTreeTest, KeepsNamespacesApart) {
  TreeBench bench({.page_size = GetParam()});
  const Tokens prompt = bench.unique(20);
  bench.insert(prompt, 20, "red");
  EXPECT_EQ(bench.tree.match(prompt, "", 20).kv_tokens, 0);
  EXPECT_EQ(bench.tree.match(prompt, "blue", 20).kv_tokens, 0);
  EXPECT_EQ(bench.tree.match(prompt, "red", 20).usable_tokens, 20);
  bench.insert(prompt, 10, "blue");
  EXPECT_EQ(bench.tree.to_string(), "blue:\n[0,10)@10\nred:\n[0,20)@20\n");
  bench.tree.clear();
  EXPECT_EQ(bench.tree.to_string(), "");
}

TEST_P(PrefixTreeTest, FindsTheExactEndOnlyWithItsHiddenVector) {
  TreeBench bench({.page_size = GetParam()});
  const Tokens prompt = bench.unique(30);
  bench.insert(prompt, 30);
  EXPECT_EQ(bench.match(prompt).exact, nullptr);
  // The better state takes the place of the one without.
  const PrefixInserted better = bench.insert(prompt, 30, "", true);
  EXPECT_TRUE(better.state_taken);
  EXPECT_EQ(bench.states.num_used(), 1);
  EXPECT_EQ(bench.tree.match(prompt, "", 29).exact, better.node);
  EXPECT_FALSE(bench.insert(prompt, 30, "", true).state_taken);
  EXPECT_EQ(bench.match(joined(prompt, bench.unique(1))).exact, nullptr);
}

TEST_P(PrefixTreeTest, HasNothingToKeepOfNoTokens) {
  TreeBench bench({.page_size = GetParam()});
  const PrefixInserted inserted =
      bench.tree.insert({.tokens = {}, .hashes = request::PrefixHashes({}), .pages = {}});
  EXPECT_EQ(inserted.node, nullptr);
  EXPECT_FALSE(inserted.state_taken);
  EXPECT_EQ(bench.tree.depth(nullptr), 0);
  EXPECT_EQ(bench.tree.state_slot(nullptr), 0);
  PrefixLock none = bench.tree.lock(nullptr, true);
  EXPECT_EQ(none.node, nullptr);
  bench.tree.unlock(none);
  bench.tree.touch(nullptr);
  bench.tree.check_invariants(true);
}

TEST_P(PrefixTreeTest, AnEpochEndsWhenAMatchMayHaveBecomeLonger) {
  TreeBench bench({.page_size = GetParam()});
  const Tokens prompt = bench.unique(30);
  const uint64_t cold = bench.tree.epoch();
  bench.insert(prompt, 30);
  const uint64_t inserted = bench.tree.epoch();
  EXPECT_LT(cold, inserted);
  bench.insert(prompt, 30);
  EXPECT_EQ(bench.tree.epoch(), inserted);
  bench.insert(prompt, 20);
  EXPECT_LT(inserted, bench.tree.epoch());
}

TEST_P(PrefixTreeTest, ADecodeSnapshotIsReplacedWithoutATrace) {
  TreeBench bench({.page_size = GetParam()});
  const Tokens tokens = bench.unique(1100);
  PrefixInserted last = bench.insert(tokens, 64);
  PrefixLock lock = bench.tree.lock(last.node, false);
  for (int64_t length = 256; length <= 1024; length += 256) {
    const PrefixInserted next = bench.insert(tokens, length);
    PrefixLock moved = bench.tree.lock(next.node, false);
    EXPECT_TRUE(bench.tree.drop_unused_state(last.node));
    bench.tree.check_invariants();
    bench.tree.unlock(lock);
    bench.tree.check_invariants();
    lock = moved;
    last = next;
  }
  EXPECT_EQ(bench.tree.to_string(), "[0,1024)@1024\n");
  bench.tree.unlock(lock);
  EXPECT_EQ(bench.tree.stats().evicted_states, 0);
}

TEST_P(PrefixTreeTest, AStateThatMayBeOfUseIsNotDropped) {
  TreeBench bench({.page_size = GetParam()});
  const Tokens tokens = bench.unique(100);
  const PrefixInserted resumed = bench.insert(tokens, 10);
  const PrefixInserted forked = bench.insert(tokens, 20);
  const PrefixInserted held = bench.insert(tokens, 30);
  const PrefixInserted twice = bench.insert(tokens, 40);
  const PrefixInserted unused = bench.insert(tokens, 50);
  bench.insert(tokens, 60);
  bench.tree.touch(resumed.node);
  bench.insert(joined(first(tokens, 20), bench.unique(3)));
  PrefixLock lock = bench.tree.lock(held.node, true);
  bench.insert(tokens, 40);
  for (PrefixNode* node : {resumed.node, forked.node, held.node, twice.node}) {
    EXPECT_FALSE(bench.tree.drop_unused_state(node));
  }
  EXPECT_TRUE(bench.tree.drop_unused_state(unused.node));
  EXPECT_FALSE(bench.tree.drop_unused_state(nullptr));
  bench.tree.unlock(lock);
  EXPECT_EQ(bench.tree.to_string(),
            "[0,10)@10\n  [10,20)@20\n    [20,30)@30\n      [30,40)@40\n        [40,60)@60\n"
            "    [20,23)@23\n");
  bench.tree.check_invariants(true);
}

TEST_P(PrefixTreeTest, AKvLockKeepsTheLeafAndAStateLockItsState) {
  TreeBench bench({.page_size = GetParam()});
  const Tokens tokens = bench.unique(100);
  bench.insert(tokens, 64);
  const PrefixInserted leaf = bench.insert(tokens, 100);
  PrefixLock lock = bench.tree.lock(leaf.node, true);
  EXPECT_EQ(bench.tree.stats().evictable_pages, 0);
  EXPECT_EQ(bench.tree.stats().evictable_states, 1);
  EXPECT_EQ(bench.tree.evict_pages(1), 0);
  EXPECT_EQ(bench.tree.evict_states(2), 1);  // that of [0,64); the edges join
  EXPECT_EQ(bench.tree.to_string(), "[0,100)@100\n");
  bench.tree.release_state(lock);
  EXPECT_EQ(bench.tree.evict_states(1), 1);
  EXPECT_EQ(bench.tree.to_string(), "[0,100)\n");
  bench.tree.check_invariants();
  bench.tree.unlock(lock);  // nothing can resume there: it goes with its last lock
  EXPECT_EQ(bench.tree.to_string(), "");
  EXPECT_EQ(bench.pages.num_used(), 0);
}

// The owner of a page table, with the mid-page rules applied by hand.
TEST(PrefixTreePagesTest, ASplitLeavesThePageInTheMiddleWithTheUpperHalf) {
  TreeBench bench({.page_size = 4});
  const Tokens prompt = bench.unique(12);
  bench.insert(prompt, 12);
  std::vector<int32_t> whole;
  bench.tree.append_pages(bench.match(prompt).resume, 12, whole);
  const PrefixInserted fork = bench.insert(prompt, 6);
  std::vector<int32_t> upper, path;
  bench.tree.append_pages(fork.node, 6, upper);
  bench.tree.append_pages(bench.match(prompt).resume, 12, path);
  EXPECT_EQ(path, whole);
  EXPECT_EQ(upper, std::vector<int32_t>(whole.begin(), whole.begin() + 2));
}

TEST(PrefixTreePagesTest, ABranchInsideAPageBringsItsOwn) {
  TreeBench bench({.page_size = 4});
  const Tokens prompt = bench.unique(6);
  const PrefixInserted trunk = bench.insert(prompt);
  const PrefixInserted branch = bench.insert(joined(prompt, bench.unique(1)));
  EXPECT_EQ(branch.known_tokens, 6);
  EXPECT_EQ(bench.tree.stats().pages, 3);  // the second page twice
  std::vector<int32_t> above, below;
  bench.tree.append_pages(trunk.node, 6, above);
  bench.tree.append_pages(branch.node, 7, below);
  EXPECT_EQ(above[0], below[0]);
  EXPECT_NE(above[1], below[1]);
  // Without the fork's state one of the two is enough.
  EXPECT_TRUE(bench.tree.drop_unused_state(trunk.node));
  EXPECT_EQ(bench.tree.to_string(), "[0,7)@7\n");
  EXPECT_EQ(bench.tree.stats().pages, 2);
  bench.tree.check_invariants(true);
}

TEST(PrefixTreePagesTest, ASequenceWritesOnInThePageItGave) {
  TreeBench bench({.page_size = 4});
  const Tokens prompt = bench.unique(6);
  std::vector<int32_t> own;
  ASSERT_TRUE(bench.pages.grow(8, own));
  const auto publish = [&](const Tokens& tokens) {
    const int32_t slot = bench.states.allocate();
    bench.states.set_label(slot, static_cast<int64_t>(tokens.size()));
    const PrefixInserted inserted = bench.tree.insert({.tokens = tokens,
                                                       .hashes = request::PrefixHashes(tokens),
                                                       .pages = own,
                                                       .state_slot = slot});
    bench.tree.check_invariants();
    return inserted;
  };
  PrefixLock first_lock = bench.tree.lock(publish(prompt).node, false);

  // Another sequence resumes at 6 and goes on with a copy of the page.
  const Tokens other = joined(prompt, {1, 2});
  bench.insert(other);
  // The first one says the same token and then another one: its rows are in the page that the
  // trunk owns, and the page that lies between does not have them.
  const Tokens mine = joined(prompt, {1, 3});
  const PrefixInserted inserted = publish(mine);
  EXPECT_EQ(bench.tree.to_string(), "[0,6)@6\n  [6,7)\n    [7,8)@8\n    [7,8)@8\n");
  std::vector<int32_t> path, others;
  bench.tree.append_pages(inserted.node, 8, path);
  bench.tree.append_pages(bench.match(other).resume, 8, others);
  EXPECT_EQ(path, own);
  EXPECT_NE(others[1], own[1]);

  // Whatever goes first, the rows stay.
  bench.tree.unlock(first_lock);
  PrefixLock lock = bench.tree.lock(inserted.node, true);
  bench.tree.clear();
  bench.tree.check_invariants();
  path.clear();
  bench.tree.append_pages(inserted.node, 8, path);
  EXPECT_EQ(path, own);
  bench.tree.unlock(lock);
  bench.tree.clear();
  EXPECT_EQ(bench.pages.num_used(), 0);
}

TEST(PrefixTreeWithoutStateTest, ResumesAtPageBoundaries) {
  TreeBench bench({.page_size = 16, .tree = {.needs_state = false}});
  const Tokens prompt = bench.unique(100);
  bench.insert(prompt, 40);
  bench.insert(prompt, 100);
  const PrefixMatch match = bench.match(prompt);
  EXPECT_EQ(match.kv_tokens, 100);
  EXPECT_EQ(match.usable_tokens, 96);
  EXPECT_EQ(bench.tree.depth(match.resume), 100);
  const PrefixMatch shorter = bench.tree.match(prompt, "", 39);
  EXPECT_EQ(shorter.usable_tokens, 32);
  EXPECT_EQ(bench.tree.depth(shorter.resume), 40);
  EXPECT_EQ(bench.tree.match(prompt, "", 15).resume, nullptr);

  std::vector<int32_t> pages;
  bench.tree.append_pages(match.resume, match.usable_tokens, pages);
  EXPECT_EQ(pages.size(), 6U);
  PrefixLock lock = bench.tree.lock(match.resume, true);
  EXPECT_FALSE(lock.holds_state);
  EXPECT_EQ(bench.tree.evict_pages(1), 0);
  bench.tree.unlock(lock);
  EXPECT_EQ(bench.tree.evict_pages(1), 5);  // the leaf, and not the edge above it
  EXPECT_EQ(bench.match(prompt).usable_tokens, 32);
  bench.tree.check_invariants(true);
}

TEST(PrefixTreeDeathTest, AStateIsTheStateAfterItsTokens) {
  TreeBench bench({});
  const Tokens prompt = bench.unique(3);
  std::vector<int32_t> own;
  ASSERT_TRUE(bench.pages.grow(3, own));
  const int32_t slot = bench.states.allocate();
  bench.states.set_label(slot, 2);
  const request::PrefixHashes hashes(prompt);
  const request::PrefixHashes strangers(prompt, "tenant");
  const PrefixInsertion insertion{
      .tokens = prompt, .hashes = hashes, .pages = own, .state_slot = slot};
  EXPECT_DEATH(bench.tree.insert(insertion), "label");
  EXPECT_DEATH(bench.tree.insert({.tokens = prompt, .hashes = hashes, .pages = own}), "state_slot");
  bench.states.set_label(slot, 3);
  EXPECT_DEATH(
      bench.tree.insert({.tokens = prompt, .hashes = strangers, .pages = own, .state_slot = slot}),
      "hashes");
  const PrefixInserted inserted = bench.tree.insert(insertion);
  bench.states.set_label(slot, 4);
  EXPECT_DEATH((void)bench.tree.match(prompt, "", 3), "label");
  EXPECT_DEATH((void)bench.tree.lock(inserted.node, true), "label");
  EXPECT_DEATH(bench.tree.check_invariants(), "label");
}

}  // namespace
}  // namespace heddle::cache
