// SPDX-License-Identifier: Apache-2.0
#include "runner/program/batch_padding.h"

#include <numeric>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::runner {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsEmpty;

TEST(SizeClasses, AreTwoToAnOctaveFromEightOn) {
  const std::vector<int64_t> sizes = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
  auto size = sizes.begin();
  for (int64_t count = 1; count <= sizes.back(); ++count) {
    if (count > *size) ++size;
    EXPECT_EQ(rounded_to_size_class(count), *size) << count;
  }
}

// Steps of sequences that all have as many rows.
class BatchPaddingTest : public ::testing::Test {
 protected:
  BatchPadding::Step step(int64_t sequences, int64_t each) {
    ids_.assign(static_cast<size_t>(sequences * each), 7);
    query_start_.clear();
    for (int64_t b = 0; b <= sequences; ++b) {
      query_start_.push_back(static_cast<int32_t>(b * each));
    }
    context_lens_.assign(static_cast<size_t>(sequences), 5);
    slots_.resize(static_cast<size_t>(sequences));
    std::iota(slots_.begin(), slots_.end(), 1);
    logit_rows_.resize(ids_.size());
    std::iota(logit_rows_.begin(), logit_rows_.end(), 0);
    return {ids_,
            ids_,
            {.query_start = query_start_,
             .context_lens = context_lens_,
             .state_slots = slots_,
             .logit_rows = logit_rows_}};
  }

  std::vector<int32_t> ids_, query_start_, context_lens_, slots_, logit_rows_;
  const ops::Extents largest_{.tokens = 64, .logits = 48, .sequences = 20};
  BatchPadding padding_;
};

// Padding has no state slot that a state could be written to.
TEST_F(BatchPaddingTest, AddsSequencesThatStandForNothing) {
  const BatchPadding::Step padded = padding_.pad(step(3, 2), largest_);
  EXPECT_THAT(padded.ids, ElementsAre(7, 7, 7, 7, 7, 7, 0, 0));
  EXPECT_THAT(padded.positions, ElementsAre(7, 7, 7, 7, 7, 7, 0, 0));
  const ops::ForwardContext& forward = padded.forward;
  EXPECT_EQ(forward.num_padding, 1);
  EXPECT_EQ(forward.num_real_sequences(), 3);
  EXPECT_EQ(forward.few_rows_each(), 2);
  EXPECT_THAT(forward.query_start, ElementsAre(0, 2, 4, 6, 8));
  EXPECT_THAT(forward.context_lens, ElementsAre(5, 5, 5, 0));
  EXPECT_THAT(forward.kv_lens, IsEmpty());
  EXPECT_THAT(forward.state_slots, ElementsAre(1, 2, 3, -1));
  EXPECT_THAT(forward.logit_rows, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(forward.wants_all_rows(8));
}

TEST_F(BatchPaddingTest, AddsRowsInOneSequenceThatStandsForNothing) {
  BatchPadding::Step some = step(3, 6);
  const std::vector<int32_t> starts{2, ops::kNoTree, ops::kNoTree};
  const std::vector<uint64_t> masks(18, 1);
  some.forward.tree_starts = starts;
  some.forward.tree_masks = masks;
  const BatchPadding::Step padded = padding_.pad_rows(some, largest_);
  EXPECT_EQ(std::ssize(padded.ids), 20);
  EXPECT_EQ(std::ssize(padded.positions), 20);
  const ops::ForwardContext& forward = padded.forward;
  EXPECT_EQ(forward.num_padding, 1);
  EXPECT_THAT(forward.query_start, ElementsAre(0, 6, 12, 18, 20));
  EXPECT_THAT(forward.context_lens, ElementsAre(5, 5, 5, 0));
  EXPECT_THAT(forward.state_slots, ElementsAre(1, 2, 3, -1));
  EXPECT_THAT(forward.tree_starts, ElementsAre(2, ops::kNoTree, ops::kNoTree, ops::kNoTree));
  EXPECT_EQ(std::ssize(forward.tree_masks), 20);
  EXPECT_EQ(forward.tree_masks.back(), 0u);
  EXPECT_EQ(forward.logit_rows.data(), some.forward.logit_rows.data());
}

TEST_F(BatchPaddingTest, PadsRowsToFewNumbersWithinTheLargestStep) {
  const auto rows = [&](int64_t real, const ops::Extents& largest) {
    const BatchPadding::Step padded = padding_.pad_rows(step(1, real), largest);
    EXPECT_EQ(padded.forward.query_start.back(), std::ssize(padded.ids));
    return std::ssize(padded.ids);
  };
  const ops::Extents wide{.tokens = 1024, .sequences = 2};
  for (const auto& [real, padded] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 4}, {4, 4}, {9, 12}, {33, 36}, {65, 72}, {129, 144}, {257, 288}, {512, 512}}) {
    EXPECT_EQ(rows(real, wide), padded);
  }
  EXPECT_EQ(rows(1021, wide), 1024);
  EXPECT_EQ(rows(61, {.tokens = 62, .sequences = 2}), 62);
  EXPECT_EQ(rows(61, {.tokens = 64, .sequences = 1}), 61) << "no room for a sequence";
}

TEST_F(BatchPaddingTest, LeavesStepsAloneThatAreNotCaptured) {
  BatchPadding::Step uneven = step(3, 2);
  query_start_[1] = 1;
  EXPECT_EQ(padding_.pad(uneven, largest_).forward.num_padding, 0);
  EXPECT_EQ(padding_.pad(step(3, ops::kFewRows + 1), largest_).forward.num_padding, 0);
  const BatchPadding::Step full = step(4, 1);
  const BatchPadding::Step same = padding_.pad(full, largest_);
  EXPECT_EQ(same.ids.data(), full.ids.data());
  EXPECT_EQ(same.forward.num_padding, 0);
}

TEST_F(BatchPaddingTest, StaysWithinTheLargestStep) {
  EXPECT_EQ(padding_.pad(step(17, 1), largest_).forward.num_sequences(), 20);
  EXPECT_EQ(padding_.pad(step(20, 1), largest_).forward.num_padding, 0);
  const BatchPadding::Step rows = padding_.pad(step(9, 6), largest_);
  EXPECT_EQ(std::ssize(rows.ids), 60);
  EXPECT_EQ(std::ssize(padding_.pad(step(9, 5), largest_).forward.logit_rows), 48);
}

TEST_F(BatchPaddingTest, WantsLogitsOfAsManyRowsAsASizeClass) {
  for (const auto& [wanted, padded] :
       std::vector<std::pair<size_t, int64_t>>{{0, 0}, {3, 4}, {5, 8}, {6, 8}, {1, 1}}) {
    BatchPadding::Step some = step(3, 2);
    some.forward.logit_rows = std::span(logit_rows_).first(wanted);
    const ops::ForwardContext forward = padding_.pad(some, largest_).forward;
    EXPECT_EQ(std::ssize(forward.logit_rows), padded) << wanted;
    EXPECT_EQ(forward.wants_all_rows(8), wanted == 6) << wanted;
  }
}

TEST_F(BatchPaddingTest, KeepsStoredLengthsWhereTheyAreGiven) {
  BatchPadding::Step some = step(3, 1);
  some.forward.kv_lens = some.forward.state_slots;
  EXPECT_THAT(padding_.pad(some, largest_).forward.kv_lens, ElementsAre(1, 2, 3, 0));
}

}  // namespace
}  // namespace heddle::runner
