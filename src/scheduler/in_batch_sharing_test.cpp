// SPDX-License-Identifier: Apache-2.0
#include "scheduler/in_batch_sharing.h"

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/queue_order.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;

class InBatchSharingTest : public ::testing::Test {
 protected:
  QueueEntry add(std::vector<TokenId> prompt, std::string name_space = {},
                 int64_t matched_tokens = 0) {
    Request request;
    request.prompt = std::move(prompt);
    request.cache_namespace = std::move(name_space);
    const auto id = static_cast<int64_t>(sequences_.size()) + 1;
    sequences_.push_back(
        std::make_unique<request::Sequence>(id, std::move(request), 0, std::span<const TokenId>()));
    return {.sequence = sequences_.back().get(), .arrival = id, .matched_tokens = matched_tokens};
  }

  // `shared` tokens of one and the same text, then `own` of this request's.
  QueueEntry share(int64_t shared, int64_t own, std::string name_space = {},
                   int64_t matched_tokens = 0) {
    const auto mark = static_cast<TokenId>(1000 + sequences_.size());
    std::vector<TokenId> prompt;
    for (int64_t i = 0; i < shared; ++i) prompt.push_back(static_cast<TokenId>(i));
    prompt.insert(prompt.end(), static_cast<size_t>(own), mark);
    return add(std::move(prompt), std::move(name_space), matched_tokens);
  }

  std::vector<std::unique_ptr<request::Sequence>> sequences_;
};

std::vector<bool> deprioritized(const std::vector<QueueEntry>& entries) {
  std::vector<bool> result;
  for (const QueueEntry& entry : entries) result.push_back(entry.deprioritized);
  return result;
}

TEST_F(InBatchSharingTest, RequestsThatBeginAlikeWaitForTheFirst) {
  std::vector<QueueEntry> entries = {share(200, 10), share(200, 10), share(200, 10), share(20, 10)};
  InBatchSharing sharing;
  sharing.begin();
  sharing.mark(entries);
  EXPECT_THAT(deprioritized(entries), ElementsAre(false, true, true, false));
  EXPECT_EQ(entries[1].leader, 1);
  EXPECT_EQ(entries[2].leader, 1);
  EXPECT_EQ(entries[1].shared_tokens, 200);
  EXPECT_EQ(entries[3].leader, kNoLeader);
  EXPECT_EQ(entries[3].shared_tokens, 0);

  QueueOrder({.policy = QueuePolicy::kLpm}).order(entries, {});
  std::vector<int64_t> order;
  for (const QueueEntry& entry : entries) order.push_back(entry.arrival);
  EXPECT_THAT(order, ElementsAre(1, 4, 2, 3));
}

TEST_F(InBatchSharingTest, ThresholdsAreWhereTheContractPutsThem) {
  std::vector<QueueEntry> entries = {share(100, 5), share(31, 5), share(32, 5),
                                     share(100, 5, "", 33), share(100, 5, "", 32)};
  InBatchSharing sharing;
  sharing.begin();
  sharing.mark(entries);
  EXPECT_THAT(deprioritized(entries), ElementsAre(false, false, true, false, true));
}

TEST_F(InBatchSharingTest, NamespacesShareNothing) {
  std::vector<QueueEntry> entries = {share(100, 5, "a"), share(100, 5, "b"), share(100, 5, "a")};
  InBatchSharing sharing;
  sharing.begin();
  sharing.mark(entries);
  EXPECT_THAT(deprioritized(entries), ElementsAre(false, false, true));
  EXPECT_EQ(entries[2].leader, 1);
}

TEST_F(InBatchSharingTest, CachedRequestsLeadNone) {
  std::vector<QueueEntry> entries = {share(100, 5, "", 64), share(100, 5)};
  InBatchSharing sharing;
  sharing.begin();
  sharing.mark(entries);
  EXPECT_THAT(deprioritized(entries), ElementsAre(false, false));
}

TEST_F(InBatchSharingTest, ANegativeCheckTurnsItOff) {
  std::vector<QueueEntry> entries = {share(100, 5), share(100, 5)};
  entries[1].deprioritized = true;  // of an earlier pass
  InBatchSharing sharing({.check_tokens = -1});
  sharing.begin();
  sharing.add_running(*entries[0].sequence);
  sharing.mark(entries);
  EXPECT_THAT(deprioritized(entries), ElementsAre(false, false));
}

TEST_F(InBatchSharingTest, EveryPassBeginsWithNothingRemembered) {
  std::vector<QueueEntry> first = {share(100, 5)};
  std::vector<QueueEntry> second = {share(100, 5)};
  InBatchSharing sharing;
  sharing.begin();
  sharing.mark(first);
  sharing.begin();
  sharing.mark(second);
  EXPECT_FALSE(second[0].deprioritized);
}

TEST_F(InBatchSharingTest, RunningSequencesLeadAndTheEarliestOfEqualsDoes) {
  std::vector<QueueEntry> running = {share(90, 9), share(120, 9), share(120, 9), share(120, 9)};
  std::vector<QueueEntry> entries = {share(120, 5), share(100, 5)};
  InBatchSharing sharing;
  sharing.begin();
  for (const QueueEntry& leader : running) sharing.add_running(*leader.sequence);
  sharing.mark(entries);
  EXPECT_EQ(entries[0].leader, 2);
  EXPECT_EQ(entries[0].shared_tokens, 120);
  EXPECT_EQ(entries[1].leader, 2);
  EXPECT_EQ(entries[1].shared_tokens, 100);
}

TEST_F(InBatchSharingTest, AFollowerWaitsForALongShareAndNotForLong) {
  const InBatchSharing sharing;
  EXPECT_TRUE(sharing.waits_for_leader({.leader = 1, .shared_tokens = 256}, 0.499));
  EXPECT_FALSE(sharing.waits_for_leader({.leader = 1, .shared_tokens = 256}, 0.5));
  EXPECT_FALSE(sharing.waits_for_leader({.leader = 1, .shared_tokens = 255}, 0));
  EXPECT_FALSE(sharing.waits_for_leader({.shared_tokens = 256}, 0));
}

// The contract, word by word: compares with all that were remembered before.
void mark_by_comparing_all(std::vector<QueueEntry>& entries,
                           std::vector<const request::Sequence*> remembered) {
  for (QueueEntry& entry : entries) {
    if (entry.matched_tokens > 32) continue;
    for (const request::Sequence* other : remembered) {
      if (other->request.cache_namespace != entry.sequence->request.cache_namespace) continue;
      const auto& a = entry.sequence->tokens;
      const auto& b = other->tokens;
      int64_t shared = 0;
      while (shared < std::ssize(a) && shared < std::ssize(b) &&
             a[static_cast<size_t>(shared)] == b[static_cast<size_t>(shared)]) {
        ++shared;
      }
      if (shared < 32) continue;
      const bool better = shared > entry.shared_tokens ||
                          (shared == entry.shared_tokens && other->id < entry.leader);
      if (!better) continue;
      entry.deprioritized = true;
      entry.leader = other->id;
      entry.shared_tokens = shared;
    }
    if (!entry.deprioritized) remembered.push_back(entry.sequence);
  }
}

TEST_F(InBatchSharingTest, AgreesWithComparingAllWithAll) {
  std::mt19937 random(7);
  int64_t followers = 0;
  for (int round = 0; round < 300; ++round) {
    sequences_.clear();
    std::vector<QueueEntry> entries;
    std::vector<const request::Sequence*> running;
    for (int i = 0; i < 40; ++i) {
      // Forks at multiples of 10 or 90, two ways each: prompts share prefixes of all lengths,
      // shorter and longer than what is hashed.
      std::vector<TokenId> prompt;
      const size_t fork = round % 2 == 0 ? 10 : 90;
      const size_t length = 1 + random() % (8 * fork);
      TokenId branch = 0;
      for (size_t t = 0; t < length; ++t) {
        if (t % fork == 0) branch = static_cast<TokenId>(random() % 5 == 0);
        prompt.push_back(branch);
      }
      QueueEntry entry = add(std::move(prompt), random() % 4 == 0 ? "other" : "",
                             static_cast<int64_t>(random() % 40));
      if (i < 8) {
        running.push_back(entry.sequence);
      } else {
        entries.push_back(entry);
      }
    }
    std::vector<QueueEntry> expected = entries;
    mark_by_comparing_all(expected, running);
    InBatchSharing sharing;
    sharing.begin();
    for (const request::Sequence* sequence : running) sharing.add_running(*sequence);
    sharing.mark(entries);
    for (size_t i = 0; i < entries.size(); ++i) {
      ASSERT_EQ(entries[i].deprioritized, expected[i].deprioritized) << round << " " << i;
      ASSERT_EQ(entries[i].leader, expected[i].leader) << round << " " << i;
      ASSERT_EQ(entries[i].shared_tokens, expected[i].shared_tokens) << round << " " << i;
      followers += entries[i].deprioritized ? 1 : 0;
    }
  }
  EXPECT_GT(followers, 1000);
}

}  // namespace
}  // namespace heddle::scheduler
