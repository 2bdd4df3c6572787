// SPDX-License-Identifier: Apache-2.0
#include "cache/snapshot_policy.h"

#include <algorithm>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::cache {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using enum SnapshotPolicy;

constexpr int64_t kGrid = 64;

std::vector<SnapshotRequest> requests(SnapshotPolicy policy, const PrefillStep& step,
                                      int64_t grid = kGrid) {
  std::vector<SnapshotRequest> requests{{.tokens = 999999}};  // is replaced
  request_snapshots(policy, grid, step, requests);
  return requests;
}

std::vector<int64_t> labels(SnapshotPolicy policy, const PrefillStep& step, int64_t grid = kGrid) {
  std::vector<int64_t> labels;
  for (const SnapshotRequest& wanted : requests(policy, step, grid))
    labels.push_back(wanted.tokens);
  return labels;
}

TEST(SnapshotPolicyTest, NoBufferKeepsTheEndOfEveryStep) {
  EXPECT_THAT(labels(kNoBuffer, {.begin = 0, .end = 210, .num_tokens = 210}), ElementsAre(210));
  EXPECT_THAT(labels(kNoBuffer, {.begin = 210, .end = 211, .num_tokens = 500}), ElementsAre(211));
  EXPECT_FALSE(wants_decode_snapshot(kNoBuffer, 256, 256));
  EXPECT_TRUE(keeps_exact_end(kNoBuffer));
  EXPECT_FALSE(chunks_on_grid(kNoBuffer));
}

TEST(SnapshotPolicyTest, ExtraBufferKeepsTheLastGridPositionOfTheStep) {
  const auto label = [](int64_t begin, int64_t end, std::vector<int64_t> forks = {},
                        int64_t grid = kGrid) {
    return labels(kExtraBuffer,
                  {.begin = begin, .end = end, .num_tokens = end, .forks = forks, .free_slots = 0},
                  grid);
  };
  EXPECT_THAT(label(0, 63), IsEmpty());
  EXPECT_THAT(label(0, 64), ElementsAre(64));
  EXPECT_THAT(label(0, 210), ElementsAre(192));
  EXPECT_THAT(label(192, 230), IsEmpty()) << "38 tokens";
  EXPECT_THAT(label(192, 322), ElementsAre(320));
  EXPECT_THAT(label(0, 320, {}, 128), ElementsAre(256)) << "a page of 128";
  // From an exact end, off the grid: the absolute grid counts.
  EXPECT_THAT(label(225, 325), ElementsAre(320));
  EXPECT_THAT(label(225, 290), ElementsAre(256));

  // A fork inside the step takes the place of the tail; at its ends and outside it does not.
  EXPECT_THAT(label(0, 512, {256}), ElementsAre(256));
  EXPECT_THAT(label(0, 512, {300}), ElementsAre(256)) << "rounded down to the grid";
  EXPECT_THAT(label(256, 512, {256}), ElementsAre(512));
  EXPECT_THAT(label(0, 512, {512}), ElementsAre(512));
  EXPECT_THAT(label(0, 512, {600}), ElementsAre(512));
  EXPECT_TRUE(requests(kExtraBuffer, {.end = 64, .num_tokens = 64}).front().evicts);
  EXPECT_TRUE(wants_decode_snapshot(kExtraBuffer, 256, 512));
  EXPECT_FALSE(wants_decode_snapshot(kExtraBuffer, 256, 511));
  EXPECT_FALSE(keeps_exact_end(kExtraBuffer));
}

TEST(SnapshotPolicyTest, MultiWantsForksAndTailMostAndEvictsForThemAlone) {
  const std::vector<int64_t> forks = {300, 70};
  const std::vector<int64_t> roles = {130, 200, 400};
  const auto wanted = requests(kMulti, {.begin = 0,
                                        .end = 600,
                                        .num_tokens = 600,
                                        .forks = forks,
                                        .role_boundaries = roles,
                                        .free_slots = 10,
                                        .num_slots = 100,
                                        .keeps_hidden = true});
  EXPECT_THAT(wanted, ElementsAre(SnapshotRequest{.tokens = 256, .evicts = true},
                                  SnapshotRequest{.tokens = 64, .evicts = true},
                                  SnapshotRequest{.tokens = 576, .evicts = true},
                                  SnapshotRequest{.tokens = 128}, SnapshotRequest{.tokens = 192},
                                  SnapshotRequest{.tokens = 384},
                                  SnapshotRequest{.tokens = 600, .keeps_hidden = true},
                                  SnapshotRequest{.tokens = 512, .spacing = 256}));
}

TEST(SnapshotPolicyTest, MultiKeepsTheTailBeforeTheLastToken) {
  EXPECT_THAT(labels(kMulti, {.end = 128, .num_tokens = 128, .num_slots = 4}), ElementsAre(64));
  EXPECT_THAT(labels(kMulti, {.end = 129, .num_tokens = 129, .num_slots = 4}), ElementsAre(128));
  EXPECT_THAT(labels(kMulti, {.end = 64, .num_tokens = 64, .num_slots = 4}), IsEmpty());
}

TEST(SnapshotPolicyTest, MultiStridesFollowTheFreeSlots) {
  PrefillStep step{.begin = 0, .end = 512, .num_tokens = 512, .num_slots = 10};
  step.free_slots = 5;  // not more than half
  EXPECT_THAT(labels(kMulti, step), ElementsAre(448, 512, 256));
  step.free_slots = 6;
  EXPECT_THAT(labels(kMulti, step), ElementsAre(448, 512, 384, 256, 128));
  // Strides are multiples of 256 of the absolute position in every chunk.
  step.begin = 320;
  step.end = 1024;
  step.num_tokens = 5000;
  step.free_slots = 5;
  EXPECT_THAT(labels(kMulti, step), ElementsAre(1024, 768, 512));
}

TEST(SnapshotPolicyTest, MultiKeepsAStrideAtTheEndForSequencesThatGoOnThere) {
  EXPECT_THAT(labels(kMulti, {.end = 256, .num_tokens = 256, .num_slots = 4}),
              ElementsAre(192, 256));
}

TEST(SnapshotPolicyTest, MultiOmitsPositionsOutsideTheStep) {
  const std::vector<int64_t> forks = {256};
  const std::vector<int64_t> roles = {100, 320, 700};
  EXPECT_THAT(labels(kMulti, {.begin = 256,
                              .end = 448,
                              .num_tokens = 900,
                              .forks = forks,
                              .role_boundaries = roles,
                              .num_slots = 4,
                              .keeps_hidden = true}),
              ElementsAre(320))
      << "the fork is where it begins, tail and end come with the last chunk";
}

TEST(SnapshotPolicyTest, EveryRequestLiesInsideTheStepOnceAndOnTheGrid) {
  std::mt19937 random(3);
  const auto below = [&](int64_t limit) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
  };
  for (int i = 0; i < 20000; ++i) {
    const int64_t grid = below(2) == 0 ? 64 : 128;
    PrefillStep step;
    step.begin = below(2) == 0 ? grid * below(5) : below(500);
    step.end = step.begin + 1 + below(900);
    step.num_tokens = step.end + below(300);
    step.keeps_hidden = step.num_tokens == step.end && below(2) == 0;
    std::vector<int64_t> forks;
    std::vector<int64_t> roles;
    for (int64_t k = below(4); k > 0; --k) forks.push_back(below(1500));
    for (int64_t k = below(4); k > 0; --k) roles.push_back(below(1500));
    std::sort(roles.begin(), roles.end());
    step.forks = forks;
    step.role_boundaries = roles;
    step.num_slots = 1 + below(20);
    step.free_slots = below(step.num_slots + 1);
    for (const SnapshotPolicy policy : {kMulti, kExtraBuffer}) {
      std::vector<int64_t> all = labels(policy, step, grid);
      if (policy == kExtraBuffer) {
        ASSERT_LE(all.size(), 1u);
      }
      for (const int64_t tokens : all) {
        ASSERT_GT(tokens, step.begin);
        ASSERT_LE(tokens, step.end);
        ASSERT_TRUE(tokens % grid == 0 || (step.keeps_hidden && tokens == step.num_tokens));
      }
      std::sort(all.begin(), all.end());
      ASSERT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
    }
  }
}

}  // namespace
}  // namespace heddle::cache
