// SPDX-License-Identifier: Apache-2.0
#include "cache/prefix_tree.h"

#include <gtest/gtest.h>

#include "cache/prefix_tree_fixture.h"

namespace heddle::cache {
namespace {

class PrefixTreeTest : public ::testing::TestWithParam<int32_t> {};

INSTANTIATE_TEST_SUITE_P(PageSizes, PrefixTreeTest, ::testing::Values(1, 4, 16, 64));

TEST_P(PrefixTreeTest, ResumesWhereAStateWasKept) {
  TreeFixture fixture({.page_size = GetParam()});
  const Tokens prompt = fixture.unique(100);
  fixture.insert(prompt, 64);
  fixture.insert(prompt, 90);
  EXPECT_EQ(fixture.tree.to_string(), "[0,64)@64\n  [64,90)@90\n");
  EXPECT_EQ(fixture.match(prompt).usable_tokens, 90);
  EXPECT_EQ(fixture.match(prompt).kv_tokens, 90);
  EXPECT_EQ(fixture.tree.match(prompt, "", 89).usable_tokens, 64);
  EXPECT_EQ(fixture.tree.match(prompt, "", 63).usable_tokens, 0);
  EXPECT_EQ(fixture.tree.match(prompt, "", 63).resume, nullptr);
  EXPECT_EQ(fixture.tree.match(prompt, "", 63).kv_tokens, 90);
}

TEST_P(PrefixTreeTest, GivesEverythingBackWhenItIsCleared) {
  TreeFixture fixture({.page_size = GetParam()});
  const Tokens prompt = fixture.unique(100);
  for (const int64_t length : {50, 33, 100, 70}) fixture.insert(prompt, length);
  fixture.insert(joined(first(prompt, 37), fixture.unique(20)));
  EXPECT_EQ(fixture.tree.stats().states, 5);
  fixture.tree.check_invariants(true);
  fixture.tree.clear();
  fixture.tree.check_invariants(true);
  EXPECT_EQ(fixture.tree.to_string(), "");
  EXPECT_EQ(fixture.tree.stats().num_tokens, 0);
  EXPECT_EQ(fixture.tree.stats().evicted_tokens, 0) << "not for want of room";
  EXPECT_EQ(fixture.tree.stats().evicted_states, 0);
  EXPECT_EQ(fixture.pages.num_used(), 0);
  EXPECT_EQ(fixture.states.num_used(), 0);
}

TEST_P(PrefixTreeTest, MatchingChangesNothing) {
  TreeFixture fixture({.page_size = GetParam()});
  const Tokens prompt = fixture.unique(100);
  fixture.insert(prompt);
  const uint64_t epoch = fixture.tree.epoch();
  EXPECT_EQ(fixture.match(first(prompt, 40)).kv_tokens, 40);
  EXPECT_EQ(fixture.match(joined(first(prompt, 40), fixture.unique(5))).kv_tokens, 40);
  EXPECT_EQ(fixture.tree.to_string(), "[0,100)@100\n");
  EXPECT_EQ(fixture.tree.epoch(), epoch);
}

TEST_P(PrefixTreeTest, KeepsNamespacesApart) {
  TreeFixture fixture({.page_size = GetParam()});
  const Tokens prompt = fixture.unique(20);
  fixture.insert(prompt, 20, "red");
  EXPECT_EQ(fixture.tree.match(prompt, "", 20).kv_tokens, 0);
  EXPECT_EQ(fixture.tree.match(prompt, "blue", 20).kv_tokens, 0);
  EXPECT_EQ(fixture.tree.match(prompt, "red", 20).usable_tokens, 20);
  fixture.insert(prompt, 10, "blue");
  EXPECT_EQ(fixture.tree.to_string(), "blue:\n[0,10)@10\nred:\n[0,20)@20\n");
  fixture.tree.clear();
  EXPECT_EQ(fixture.tree.to_string(), "");
}

TEST_P(PrefixTreeTest, FindsTheExactEndOnlyWithItsHiddenVector) {
  TreeFixture fixture({.page_size = GetParam()});
  const Tokens prompt = fixture.unique(30);
  fixture.insert(prompt, 30);
  EXPECT_EQ(fixture.match(prompt).exact, nullptr);
  // The better state takes the place of the one without.
  const PrefixInserted better = fixture.insert(prompt, 30, "", true);
  EXPECT_TRUE(better.state_taken);
  EXPECT_EQ(fixture.states.num_used(), 1);
  EXPECT_EQ(fixture.tree.match(prompt, "", 29).exact, better.node);
  EXPECT_FALSE(fixture.insert(prompt, 30, "", true).state_taken);
  EXPECT_EQ(fixture.match(joined(prompt, fixture.unique(1))).exact, nullptr);
}

TEST_P(PrefixTreeTest, HasNothingToKeepOfNoTokens) {
  TreeFixture fixture({.page_size = GetParam()});
  const PrefixInserted inserted =
      fixture.tree.insert({.tokens = {}, .hashes = request::PrefixHashes({}), .pages = {}});
  EXPECT_EQ(inserted.node, nullptr);
  EXPECT_FALSE(inserted.state_taken);
  EXPECT_EQ(fixture.tree.depth(nullptr), 0);
  EXPECT_EQ(fixture.tree.state_slot(nullptr), 0);
  PrefixLock none = fixture.tree.lock(nullptr, true);
  EXPECT_EQ(none.node, nullptr);
  fixture.tree.unlock(none);
  fixture.tree.touch(nullptr);
  fixture.tree.check_invariants(true);
}

TEST_P(PrefixTreeTest, AnEpochEndsWhenAMatchMayHaveBecomeLonger) {
  TreeFixture fixture({.page_size = GetParam()});
  const Tokens prompt = fixture.unique(30);
  const uint64_t cold = fixture.tree.epoch();
  fixture.insert(prompt, 30);
  const uint64_t inserted = fixture.tree.epoch();
  EXPECT_LT(cold, inserted);
  fixture.insert(prompt, 30);
  EXPECT_EQ(fixture.tree.epoch(), inserted);
  fixture.insert(prompt, 20);
  EXPECT_LT(inserted, fixture.tree.epoch());
}

TEST_P(PrefixTreeTest, ADecodeSnapshotIsReplacedWithoutATrace) {
  TreeFixture fixture({.page_size = GetParam()});
  const Tokens tokens = fixture.unique(1100);
  PrefixInserted last = fixture.insert(tokens, 64);
  PrefixLock lock = fixture.tree.lock(last.node, false);
  for (int64_t length = 256; length <= 1024; length += 256) {
    const PrefixInserted next = fixture.insert(tokens, length);
    PrefixLock moved = fixture.tree.lock(next.node, false);
    EXPECT_TRUE(fixture.tree.drop_unused_state(last.node));
    fixture.tree.check_invariants();
    fixture.tree.unlock(lock);
    fixture.tree.check_invariants();
    lock = moved;
    last = next;
  }
  EXPECT_EQ(fixture.tree.to_string(), "[0,1024)@1024\n");
  fixture.tree.unlock(lock);
  EXPECT_EQ(fixture.tree.stats().evicted_states, 0);
}

// A sequence that publishes at many depths, while others part from it, goes on from where it was.
TEST_P(PrefixTreeTest, AnInsertionMayBeginAtALockedNode) {
  TreeFixture fixture({.page_size = GetParam()});
  TreeFixture from_the_root({.page_size = GetParam()});
  const Tokens tokens = fixture.unique(1000);
  PrefixLock lock;
  for (int64_t length = 64; length <= 960; length += 64) {
    const PrefixInserted inserted = fixture.insert(tokens, length, "", false, lock.node);
    fixture.tree.move(lock, inserted.node);
    EXPECT_EQ(lock.node, inserted.node);
    fixture.tree.check_invariants();
    EXPECT_EQ(from_the_root.insert(tokens, length).known_tokens, inserted.known_tokens);
    const Tokens fork = joined(first(tokens, length - 20), {static_cast<TokenId>(length)});
    fixture.insert(fork);
    from_the_root.insert(fork);
  }
  EXPECT_EQ(fixture.tree.to_string(), from_the_root.tree.to_string());
  const int64_t locked = fixture.tree.stats().evictable_pages;
  fixture.tree.move(lock, fixture.match(first(tokens, 320)).resume);  // also upwards
  fixture.tree.check_invariants();
  EXPECT_GT(fixture.tree.stats().evictable_pages, locked);
  fixture.tree.unlock(lock);
  fixture.tree.check_invariants(true);
  EXPECT_EQ(fixture.tree.stats().evictable_pages, fixture.tree.stats().pages);
}

TEST_P(PrefixTreeTest, AnInsertionThatBeginsAtAnotherPathAborts) {
  TreeFixture fixture({.page_size = GetParam()});
  const PrefixInserted other = fixture.insert(fixture.unique(10));
  PrefixLock lock = fixture.tree.lock(other.node, false);
  EXPECT_DEATH(fixture.insert(fixture.unique(20), 20, "", false, other.node), "hash");
  fixture.tree.unlock(lock);
}

TEST_P(PrefixTreeTest, AStateThatMayBeOfUseIsNotDropped) {
  TreeFixture fixture({.page_size = GetParam()});
  const Tokens tokens = fixture.unique(100);
  const PrefixInserted resumed = fixture.insert(tokens, 10);
  const PrefixInserted forked = fixture.insert(tokens, 20);
  const PrefixInserted held = fixture.insert(tokens, 30);
  const PrefixInserted twice = fixture.insert(tokens, 40);
  const PrefixInserted unused = fixture.insert(tokens, 50);
  fixture.insert(tokens, 60);
  fixture.tree.touch(resumed.node);
  fixture.insert(joined(first(tokens, 20), fixture.unique(3)));
  PrefixLock lock = fixture.tree.lock(held.node, true);
  fixture.insert(tokens, 40);
  for (PrefixNode* node : {resumed.node, forked.node, held.node, twice.node}) {
    EXPECT_FALSE(fixture.tree.drop_unused_state(node));
  }
  EXPECT_TRUE(fixture.tree.drop_unused_state(unused.node));
  EXPECT_FALSE(fixture.tree.drop_unused_state(nullptr));
  fixture.tree.unlock(lock);
  EXPECT_EQ(fixture.tree.to_string(),
            "[0,10)@10\n  [10,20)@20\n    [20,30)@30\n      [30,40)@40\n        [40,60)@60\n"
            "    [20,23)@23\n");
  fixture.tree.check_invariants(true);
}

TEST_P(PrefixTreeTest, AKvLockKeepsTheLeafAndAStateLockItsState) {
  TreeFixture fixture({.page_size = GetParam()});
  const Tokens tokens = fixture.unique(100);
  fixture.insert(tokens, 64);
  const PrefixInserted leaf = fixture.insert(tokens, 100);
  PrefixLock lock = fixture.tree.lock(leaf.node, true);
  EXPECT_EQ(fixture.tree.stats().evictable_pages, 0);
  EXPECT_EQ(fixture.tree.stats().evictable_states, 1);
  EXPECT_EQ(fixture.tree.evict_pages(1), 0);
  EXPECT_EQ(fixture.tree.evict_states(2), 1);  // that of [0,64); the edges join
  EXPECT_EQ(fixture.tree.to_string(), "[0,100)@100\n");
  fixture.tree.release_state(lock);
  EXPECT_EQ(fixture.tree.evict_states(1), 1);
  EXPECT_EQ(fixture.tree.to_string(), "[0,100)\n");
  fixture.tree.check_invariants();
  fixture.tree.unlock(lock);  // nothing can resume there: it goes with its last lock
  EXPECT_EQ(fixture.tree.to_string(), "");
  EXPECT_EQ(fixture.pages.num_used(), 0);
}

// The owner of a page table, with the mid-page rules applied by hand.
TEST(PrefixTreePagesTest, ASplitLeavesThePageInTheMiddleWithTheUpperHalf) {
  TreeFixture fixture({.page_size = 4});
  const Tokens prompt = fixture.unique(12);
  fixture.insert(prompt, 12);
  std::vector<int32_t> whole;
  fixture.tree.append_pages(fixture.match(prompt).resume, 12, whole);
  const PrefixInserted fork = fixture.insert(prompt, 6);
  std::vector<int32_t> upper, path;
  fixture.tree.append_pages(fork.node, 6, upper);
  fixture.tree.append_pages(fixture.match(prompt).resume, 12, path);
  EXPECT_EQ(path, whole);
  EXPECT_EQ(upper, std::vector<int32_t>(whole.begin(), whole.begin() + 2));
}

TEST(PrefixTreePagesTest, ABranchInsideAPageBringsItsOwn) {
  TreeFixture fixture({.page_size = 4});
  const Tokens prompt = fixture.unique(6);
  const PrefixInserted trunk = fixture.insert(prompt);
  const PrefixInserted branch = fixture.insert(joined(prompt, fixture.unique(1)));
  EXPECT_EQ(branch.known_tokens, 6);
  EXPECT_EQ(fixture.tree.stats().pages, 3);  // the second page twice
  std::vector<int32_t> above, below;
  fixture.tree.append_pages(trunk.node, 6, above);
  fixture.tree.append_pages(branch.node, 7, below);
  EXPECT_EQ(above[0], below[0]);
  EXPECT_NE(above[1], below[1]);
  // Without the fork's state one of the two is enough.
  EXPECT_TRUE(fixture.tree.drop_unused_state(trunk.node));
  EXPECT_EQ(fixture.tree.to_string(), "[0,7)@7\n");
  EXPECT_EQ(fixture.tree.stats().pages, 2);
  fixture.tree.check_invariants(true);
}

TEST(PrefixTreePagesTest, ASequenceWritesOnInThePageItGave) {
  TreeFixture fixture({.page_size = 4});
  const Tokens prompt = fixture.unique(6);
  std::vector<int32_t> own;
  ASSERT_TRUE(fixture.pages.grow(8, own));
  const auto publish = [&](const Tokens& tokens) {
    const int32_t slot = fixture.states.allocate();
    fixture.states.set_label(slot, static_cast<int64_t>(tokens.size()));
    const PrefixInserted inserted = fixture.tree.insert({.tokens = tokens,
                                                         .hashes = request::PrefixHashes(tokens),
                                                         .pages = own,
                                                         .state_slot = slot});
    fixture.tree.check_invariants();
    return inserted;
  };
  PrefixLock first_lock = fixture.tree.lock(publish(prompt).node, false);

  // Another sequence resumes at 6 and goes on with a copy of the page.
  const Tokens other = joined(prompt, {1, 2});
  fixture.insert(other);
  // The first one says the same token and then another one: its rows are in the page that the
  // trunk owns, and the page that lies between does not have them.
  const Tokens mine = joined(prompt, {1, 3});
  const PrefixInserted inserted = publish(mine);
  EXPECT_EQ(fixture.tree.to_string(), "[0,6)@6\n  [6,7)\n    [7,8)@8\n    [7,8)@8\n");
  std::vector<int32_t> path, others;
  fixture.tree.append_pages(inserted.node, 8, path);
  fixture.tree.append_pages(fixture.match(other).resume, 8, others);
  EXPECT_EQ(path, own);
  EXPECT_NE(others[1], own[1]);

  // The rows stay in either order of leaving.
  fixture.tree.unlock(first_lock);
  PrefixLock lock = fixture.tree.lock(inserted.node, true);
  fixture.tree.clear();
  fixture.tree.check_invariants();
  path.clear();
  fixture.tree.append_pages(inserted.node, 8, path);
  EXPECT_EQ(path, own);
  fixture.tree.unlock(lock);
  fixture.tree.clear();
  EXPECT_EQ(fixture.pages.num_used(), 0);
}

TEST(PrefixTreeWithoutStateTest, ResumesAtPageBoundaries) {
  TreeFixture fixture({.page_size = 16, .tree = {.needs_state = false}});
  const Tokens prompt = fixture.unique(100);
  fixture.insert(prompt, 40);
  fixture.insert(prompt, 100);
  const PrefixMatch match = fixture.match(prompt);
  EXPECT_EQ(match.kv_tokens, 100);
  EXPECT_EQ(match.usable_tokens, 96);
  EXPECT_EQ(fixture.tree.depth(match.resume), 100);
  const PrefixMatch shorter = fixture.tree.match(prompt, "", 39);
  EXPECT_EQ(shorter.usable_tokens, 32);
  EXPECT_EQ(fixture.tree.depth(shorter.resume), 40);
  EXPECT_EQ(fixture.tree.match(prompt, "", 15).resume, nullptr);

  std::vector<int32_t> pages;
  fixture.tree.append_pages(match.resume, match.usable_tokens, pages);
  EXPECT_EQ(pages.size(), 6U);
  PrefixLock lock = fixture.tree.lock(match.resume, true);
  EXPECT_FALSE(lock.locks_state);
  EXPECT_EQ(fixture.tree.evict_pages(1), 0);
  fixture.tree.unlock(lock);
  EXPECT_EQ(fixture.tree.evict_pages(1), 5);  // the leaf, and not the edge above it
  EXPECT_EQ(fixture.match(prompt).usable_tokens, 32);
  fixture.tree.check_invariants(true);
}

TEST(PrefixTreeDeathTest, AStateIsTheStateAfterItsTokens) {
  TreeFixture fixture({});
  const Tokens prompt = fixture.unique(3);
  std::vector<int32_t> own;
  ASSERT_TRUE(fixture.pages.grow(3, own));
  const int32_t slot = fixture.states.allocate();
  fixture.states.set_label(slot, 2);
  const request::PrefixHashes hashes(prompt);
  const request::PrefixHashes strangers(prompt, "tenant");
  const PrefixInsertion insertion{
      .tokens = prompt, .hashes = hashes, .pages = own, .state_slot = slot};
  EXPECT_DEATH(fixture.tree.insert(insertion), "label");
  EXPECT_DEATH(fixture.tree.insert({.tokens = prompt, .hashes = hashes, .pages = own}),
               "state_slot");
  fixture.states.set_label(slot, 3);
  EXPECT_DEATH(fixture.tree.insert(
                   {.tokens = prompt, .hashes = strangers, .pages = own, .state_slot = slot}),
               "hashes");
  const PrefixInserted inserted = fixture.tree.insert(insertion);
  fixture.states.set_label(slot, 4);
  EXPECT_DEATH((void)fixture.tree.match(prompt, "", 3), "label");
  EXPECT_DEATH((void)fixture.tree.lock(inserted.node, true), "label");
  EXPECT_DEATH(fixture.tree.check_invariants(), "label");
}

}  // namespace
}  // namespace heddle::cache
