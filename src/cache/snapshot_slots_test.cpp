// SPDX-License-Identifier: Apache-2.0
// How PrefixCache keeps the end of a sequence, where snapshots use the state slots and where they
// have slots of their own. How it behaves under load is the scheduler's random test and
// the label oracle.
#include <memory>
#include <numeric>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cache/prefix_cache.h"
#include "support/toy_model.h"

namespace heddle::cache {

namespace {

using request::BatchPlan;
using request::MoveKind;
using request::PlannedSequence;
using request::Sequence;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// NOLINTNEXTLINE(readability-identifier-naming): matchers are named as GoogleTest's
MATCHER_P2(Copies, from, to, "") { return arg.from == from && arg.to == to; }

PrefixCacheOptions roomy() {
  return {.pools = {.num_pages = 64,
                    .page_size = 16,
                    .num_state_slots = 2,
                    .num_snapshot_slots = 4,
                    .page_bytes = 10,
                    .state_slot_bytes = 100,
                    .snapshot_slot_bytes = 50,
                    .flops = testing::kToyFlops,
                    .keeps_hidden = true}};
}

// A sequence and its part of the cache.
struct PromptedSequence {
  explicit PromptedSequence(std::vector<TokenId> prompt) {
    Request request;
    request.prompt = std::move(prompt);
    request.stop.max_new_tokens = 4;
    sequence = std::make_unique<Sequence>(1, std::move(request), 0, std::span<const TokenId>());
  }

  std::unique_ptr<Sequence> sequence;
  CachedSequence cached;
};

class SnapshotSlotsTest : public ::testing::Test {
 protected:
  void make(const PrefixCacheOptions& options) { cache_ = std::make_unique<PrefixCache>(options); }

  // Numbers from `first` on: prompts of different first numbers have nothing in common.
  static std::vector<TokenId> prompt(int64_t length, TokenId first = 0) {
    std::vector<TokenId> tokens(static_cast<size_t>(length));
    std::iota(tokens.begin(), tokens.end(), first);
    return tokens;
  }

  bool admit(PromptedSequence& running) {
    Sequence& sequence = *running.sequence;
    if (!cache_->admit(sequence, cache_->match(sequence), 0, running.cached)) return false;
    running_.push_back(&running);
    return true;
  }

  // Admits the sequence and computes its prompt in one step, whose plan is `plan_` then.
  bool compute(PromptedSequence& running) {
    Sequence& sequence = *running.sequence;
    if (!admit(running)) return false;
    plan_.clear();
    PlannedSequence planned;
    planned.context_tokens = sequence.num_computed;
    cache_->plan_prefill(sequence, running.cached, sequence.num_tokens(), planned, plan_);
    plan_.sequences.push_back(planned);
    cache_->plan_head(plan_);
    sequence.num_computed = sequence.num_tokens();
    cache_->confirm(sequence, running.cached);
    check();
    return true;
  }

  void release(PromptedSequence& running, PrefixCache::Keep keep = PrefixCache::Keep::kEnd) {
    cache_->release(*running.sequence, running.cached, keep);
    std::erase(running_, &running);
    check();
  }

  void check() const {
    std::vector<AdmittedSequence> held;
    for (const PromptedSequence* one : running_)
      held.push_back({one->sequence.get(), &one->cached});
    cache_->check_invariants(held);
  }

  // Where a prompt that goes on after `tokens` would resume.
  [[nodiscard]] int64_t usable(std::vector<TokenId> tokens) const {
    tokens.push_back(-1);
    return cache_->match(*PromptedSequence(std::move(tokens)).sequence).usable_tokens;
  }

  std::unique_ptr<PrefixCache> cache_;
  BatchPlan plan_;
  std::vector<const PromptedSequence*> running_;
};

TEST_F(SnapshotSlotsTest, GivesTheTreeTheWorkingSlotWhereSnapshotsShareSlots) {
  PrefixCacheOptions options = roomy();
  options.pools.num_snapshot_slots = 0;
  options.pools.num_state_slots = 8;
  make(options);
  PromptedSequence running(prompt(37));
  ASSERT_TRUE(compute(running));
  const int32_t working = running.sequence->state_slot;
  release(running);
  EXPECT_EQ(usable(prompt(37)), 37);
  PromptedSequence next(prompt(50));
  ASSERT_TRUE(compute(next));
  EXPECT_THAT(plan_.moves_of(MoveKind::kSave), IsEmpty());
  EXPECT_THAT(plan_.moves_of(MoveKind::kRestore),
              ElementsAre(Copies(working, next.sequence->state_slot)));
}

TEST_F(SnapshotSlotsTest, SavesAnEndAtTheHeadOfTheNextPlan) {
  make(roomy());
  PromptedSequence running(prompt(37));
  ASSERT_TRUE(compute(running));
  EXPECT_THAT(plan_.moves_of(MoveKind::kSave), IsEmpty());
  const int32_t working = running.sequence->state_slot;
  release(running);
  EXPECT_EQ(usable(prompt(37)), 37) << "published before it is saved";
  EXPECT_EQ(cache_->available_states(), 2) << "the working slot is free at once";

  // The same plan saves the state, goes on from it, and starts another sequence in the working
  // slot.
  PromptedSequence next(prompt(50));
  ASSERT_TRUE(compute(next));
  ASSERT_EQ(plan_.moves_of(MoveKind::kSave).size(), 1u);
  EXPECT_EQ(plan_.moves_of(MoveKind::kSave)[0].from, working);
  EXPECT_EQ(next.sequence->state_slot, working) << "freed last, taken first";
  EXPECT_THAT(plan_.moves_of(MoveKind::kRestore),
              ElementsAre(Copies(plan_.moves_of(MoveKind::kSave)[0].to, working)));
  release(next);
}

TEST_F(SnapshotSlotsTest, KeepsPendingSavesUntilThereIsAPlan) {
  make(roomy());
  PromptedSequence one(prompt(37)), two(prompt(45, 1000));
  ASSERT_TRUE(compute(one));
  ASSERT_TRUE(compute(two));
  const int32_t first = one.sequence->state_slot;
  const int32_t second = two.sequence->state_slot;
  release(one);
  release(two);
  BatchPlan head;
  cache_->plan_head(head);
  ASSERT_EQ(head.moves_of(MoveKind::kSave).size(), 2u);
  EXPECT_EQ(head.moves_of(MoveKind::kSave)[0].from, first);
  EXPECT_EQ(head.moves_of(MoveKind::kSave)[1].from, second);
  EXPECT_NE(head.moves_of(MoveKind::kSave)[0].to, head.moves_of(MoveKind::kSave)[1].to);
  head.clear();
  cache_->plan_head(head);
  EXPECT_THAT(head.moves_of(MoveKind::kSave), IsEmpty()) << "once";
}

TEST_F(SnapshotSlotsTest, SavesNothingThatWasEvictedMeanwhile) {
  make(roomy());
  PromptedSequence running(prompt(37));
  ASSERT_TRUE(compute(running));
  release(running);
  cache_->clear();
  EXPECT_EQ(usable(prompt(37)), 0);
  BatchPlan head;
  cache_->plan_head(head);
  EXPECT_THAT(head.moves_of(MoveKind::kSave), IsEmpty());
  EXPECT_EQ(cache_->stats().state_slots_used, 0);
}

TEST_F(SnapshotSlotsTest, EvictsForAnEndAndItsSlotIsNotSavedTwice) {
  PrefixCacheOptions options = roomy();
  options.pools.num_snapshot_slots = 1;
  make(options);
  PromptedSequence one(prompt(37)), two(prompt(45, 1000));
  ASSERT_TRUE(compute(one));
  ASSERT_TRUE(compute(two));
  const int32_t second = two.sequence->state_slot;
  release(one);
  EXPECT_EQ(usable(prompt(37)), 37);
  release(two);
  EXPECT_EQ(usable(prompt(37)), 0) << "gave way";
  EXPECT_EQ(usable(prompt(45, 1000)), 45);
  BatchPlan head;
  cache_->plan_head(head);
  EXPECT_THAT(head.moves_of(MoveKind::kSave), ElementsAre(Copies(second, 1)));
}

TEST_F(SnapshotSlotsTest, KeepsNoEndWhereNoSnapshotSlotCanBeHad) {
  PrefixCacheOptions options = roomy();
  options.pools.num_snapshot_slots = 1;
  make(options);
  PromptedSequence first(prompt(37));
  ASSERT_TRUE(compute(first));
  release(first);
  // A sequence that has not run yet locks the only snapshot.
  PromptedSequence holder(prompt(50));
  ASSERT_TRUE(admit(holder));
  PromptedSequence other(prompt(45, 1000));
  ASSERT_TRUE(compute(other));
  release(other);
  EXPECT_EQ(usable(prompt(45, 1000)), 0);
  EXPECT_EQ(usable(prompt(37)), 37);
  EXPECT_GE(cache_->stats().skipped_snapshots, 1);
  EXPECT_EQ(cache_->available_states(), 1) << "its working slot is free all the same";
  release(holder, PrefixCache::Keep::kPublished);
}

TEST_F(SnapshotSlotsTest, SavesNoEndThatIsThereAlready) {
  PrefixCacheOptions options = roomy();
  options.pools.num_snapshot_slots = 1;
  options.pools.keeps_hidden = false;
  make(options);
  PromptedSequence one(prompt(37)), two(prompt(37));
  ASSERT_TRUE(compute(one));
  ASSERT_TRUE(compute(two));
  release(one);
  release(two);
  BatchPlan head;
  cache_->plan_head(head);
  EXPECT_EQ(head.moves_of(MoveKind::kSave).size(), 1u);
  EXPECT_EQ(cache_->stats().evicted_states, 0);
  EXPECT_EQ(usable(prompt(37)), 37);
}

// Three kinds of memory in one budget: a snapshot fits in the place of the working slot that it
// comes from, whose memory goes back behind it.
TEST_F(SnapshotSlotsTest, SharesOneBudgetAmongPagesWorkingAndSnapshots) {
  PrefixCacheOptions options = roomy();
  options.pools.shared_bytes = 160;  // a working state and six pages
  options.policy = SnapshotPolicy::kNoBuffer;
  options.pools.page_size = 1;
  make(options);
  PromptedSequence running(prompt(6));
  ASSERT_TRUE(compute(running));
  EXPECT_EQ(cache_->available_states(), 0);
  const int32_t working = running.sequence->state_slot;
  release(running);
  EXPECT_EQ(usable(prompt(6)), 6);
  // Five pages want memory that the idle working slot has: it goes back once it has been saved.
  PromptedSequence next(prompt(4, 1000));
  ASSERT_TRUE(compute(next)) << "everything else gives way";
  EXPECT_EQ(usable(prompt(6)), 0);
  EXPECT_EQ(next.sequence->state_slot, working);
  EXPECT_THAT(plan_.moves_of(MoveKind::kSave), IsEmpty()) << "evicted before it was saved";
  release(next);
}

}  // namespace
}  // namespace heddle::cache
