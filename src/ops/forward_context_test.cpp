// SPDX-License-Identifier: Apache-2.0
#include "ops/forward_context.h"

#include <array>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace heddle::ops {
namespace {

using ::testing::HasSubstr;

// Two sequences of 2 and 3 rows over pools of 5 pages of 4 tokens, 4 state slots and 3 snapshot
// slots, whose second layers are the smaller ones.
class CheckBatchTest : public ::testing::Test {
 protected:
  CheckBatchTest() {
    for (const int64_t num_pages : {6, 5}) {
      kv_layers_.push_back({.k = pool({num_pages, 4, 1, 8}), .v = pool({num_pages, 4, 1, 8})});
    }
    for (const int64_t num_slots : {5, 4}) {
      state_layers_.push_back(
          {.conv = pool({num_slots, 3, 16}), .recurrent = pool({num_slots, 2, 4, 8})});
    }
    for (const int64_t num_slots : {4, 3}) {
      snapshot_layers_.push_back({.conv = pool({num_slots, 3, 16}),
                                  .recurrent = pool({num_slots, 2, 4, 8}),
                                  .scales = {}});
    }
    forward_ = {.query_start = query_start_,
                .context_lens = context_lens_,
                .page_tables = {page_table_},
                .page_table_width = 2,
                .page_size = 4,
                .state_slots = state_slots_,
                .snapshots = snapshots_,
                .logit_rows = logit_rows_,
                .kv_layers = kv_layers_,
                .state_layers = state_layers_,
                .snapshot_layers = snapshot_layers_};
  }

  // Ids are all that is looked at: the pools need no memory.
  static MutableTensorView pool(const Shape& shape) { return {nullptr, DType::kF32, shape}; }

  [[nodiscard]] std::string message() const { return check_batch(forward_, 5).to_string(); }

  std::vector<KvLayer> kv_layers_;
  std::vector<StateLayer> state_layers_;
  std::vector<SnapshotLayer> snapshot_layers_;
  std::vector<int32_t> query_start_{0, 2, 5}, context_lens_{3, 0}, page_table_{1, 2, 4, -1};
  std::vector<int32_t> state_slots_{1, 3}, logit_rows_{1, 4};
  std::vector<StateSnapshot> snapshots_{{.sequence = 0, .num_tokens = 2, .slot = 1},
                                        {.sequence = 1, .num_tokens = 1, .slot = 2}};
  ForwardContext forward_;
};

TEST_F(CheckBatchTest, TakesABatchWhoseIdsLieWithinEveryLayersPool) {
  EXPECT_TRUE(check_batch(forward_, 5).ok()) << message();
}

TEST_F(CheckBatchTest, NamesThePageOutsideThePool) {
  for (const int32_t page : {5, -1}) {
    page_table_[1] = page;
    EXPECT_THAT(message(), HasSubstr("sequence 0 names page " + std::to_string(page) +
                                     " in page table 0, the pool has 5"));
  }
}

TEST_F(CheckBatchTest, LooksOnlyAtPagesThatHoldTokens) {
  page_table_[3] = 99;  // the second sequence has 3 tokens, all in its first page
  EXPECT_TRUE(check_batch(forward_, 5).ok()) << message();
  context_lens_[1] = 2;
  EXPECT_THAT(message(), HasSubstr("sequence 1 names page 99 in page table 0"));
}

TEST_F(CheckBatchTest, ChecksEachGroupOfLayersAgainstItsOwnTableAndPool) {
  EXPECT_EQ(forward_.num_page_tables(), 1U);
  page_table_[0] = 5;
  for (uint32_t table = 1; table < kMaxPageTables; ++table) {
    kv_layers_[1].table = table;  // 5 pages; the other layer has 6
    const std::vector<int32_t> inside{4, 3, 2, 1}, outside{4, 5, 2, 1};
    forward_.page_tables[table] = inside;
    EXPECT_EQ(forward_.num_page_tables(), table + 1);
    EXPECT_TRUE(check_batch(forward_, 5).ok()) << message();
    EXPECT_EQ(forward_.pages(1, table)[1], 1);
    EXPECT_EQ(forward_.pages(1)[0], 4);
    forward_.page_tables[table] = outside;
    EXPECT_THAT(message(), HasSubstr(fmt::format(
                               "sequence 0 names page 5 in page table {}, the pool has 5", table)));
    forward_.page_tables[table] = {};
    EXPECT_THAT(message(),
                HasSubstr(fmt::format("page table {} has 0 entries, 2 x 2 are needed", table)));
  }
}

TEST_F(CheckBatchTest, KnownRowsAreStoredAgainInTablesOfWindowsOnly) {
  const std::vector<int32_t> kv_lens{5, 0};
  forward_.kv_lens = kv_lens;
  EXPECT_EQ(forward_.first_stored(0, 0), 5);
  for (size_t table = 1; table < kMaxPageTables; ++table) {
    EXPECT_EQ(forward_.first_stored(0, table), 3);
  }
}

TEST_F(CheckBatchTest, RefusesAPageTableThatEndsBeforeTheLastToken) {
  context_lens_[0] = 7;
  EXPECT_THAT(message(), HasSubstr("sequence 0 has 9 tokens, its page table has room for 8"));
  forward_.page_tables[0] = forward_.page_tables[0].first(3);
  EXPECT_THAT(message(), HasSubstr("page table 0 has 3 entries, 2 x 2 are needed"));
}

TEST_F(CheckBatchTest, RefusesPagesOfAnotherSize) {
  forward_.page_size = 8;
  EXPECT_THAT(message(), HasSubstr("the batch has pages of 8 tokens, the pool pages of 4"));
}

TEST_F(CheckBatchTest, ANodeOfATreeIsTheLastThatItSees) {
  // The second sequence: a row, then two nodes that both follow it.
  const std::vector<int32_t> starts{kNoTree, 1};
  std::vector<uint64_t> masks{0, 0, 0, 0b01, 0b10};
  state_slots_[1] = 1;
  state_slots_[0] = 0;
  snapshots_ = {};
  forward_.snapshots = {};
  forward_.tree_starts = starts;
  forward_.tree_masks = masks;
  EXPECT_TRUE(check_batch(forward_, 5).ok()) << message();
  EXPECT_FALSE(forward_.has_tree(0));
  EXPECT_EQ(forward_.num_chain_rows(0), 2);
  EXPECT_EQ(forward_.num_chain_rows(1), 1);
  EXPECT_EQ(forward_.position(0, 1), 4);
  EXPECT_EQ(forward_.position(1, 1), 1);
  EXPECT_EQ(forward_.position(1, 2), 1);
  EXPECT_EQ(forward_.parent_row(1, 2), 0);
  EXPECT_EQ(forward_.few_rows_each(), 0);
  masks[4] = 0b11;
  EXPECT_EQ(forward_.position(1, 2), 2);
  EXPECT_EQ(forward_.parent_row(1, 2), 1);

  masks[4] = 0b01;
  EXPECT_THAT(message(), HasSubstr("row 2 of sequence 1 is node 1 of a tree and sees nodes 0x1"));
  masks[4] = 0b10;
  masks[0] = 1;
  EXPECT_THAT(message(), HasSubstr("row 0 of sequence 0"));
  masks[0] = 0;
  state_slots_[1] = 2;
  EXPECT_THAT(message(), HasSubstr("2 nodes of a tree behind state slot 2, the pool has 4"));
  state_slots_[1] = 1;
  snapshots_ = {{.sequence = 1, .num_tokens = 2, .slot = 1}};
  forward_.snapshots = snapshots_;
  EXPECT_THAT(message(), HasSubstr("the snapshot of sequence 1 after 2 tokens"));
  forward_.tree_masks = std::span(masks).first(4);
  EXPECT_THAT(message(), HasSubstr("2 starts and 4 masks"));
}

TEST_F(CheckBatchTest, NamesTheStateSlotOutsideThePool) {
  for (const int32_t slot : {4, -1}) {
    state_slots_[1] = slot;
    EXPECT_THAT(message(), HasSubstr("sequence 1 has state slot " + std::to_string(slot) +
                                     ", the pool has 4"));
  }
}

TEST_F(CheckBatchTest, NamesTheSnapshotThatDoesNotFit) {
  snapshots_[1].slot = 3;
  EXPECT_THAT(message(), HasSubstr("the snapshot of sequence 1 after 1 tokens in slot 3 does not "
                                   "fit 2 sequences and 3 slots"));
  forward_.snapshot_layers = {};  // then snapshots lie among the working slots
  EXPECT_TRUE(check_batch(forward_, 5).ok()) << message();
  snapshots_[1] = {.sequence = 0, .num_tokens = 3, .slot = 1};
  EXPECT_THAT(message(), HasSubstr("the snapshot of sequence 0 after 3 tokens"));
  snapshots_[1] = {.sequence = 0, .num_tokens = 1, .slot = 1};
  EXPECT_THAT(message(), HasSubstr("snapshots must be sorted"));
}

TEST_F(CheckBatchTest, RefusesRowsThatAreNotThoseOfTheStep) {
  EXPECT_THAT(check_batch(forward_, 6).to_string(), HasSubstr("covers rows 0 to 5"));
  logit_rows_[1] = 5;
  EXPECT_THAT(message(), HasSubstr("logits of row 5 are wanted, there are 5"));
  query_start_[1] = 0;
  EXPECT_THAT(message(), HasSubstr("sequence 0 has 0 rows after 3 tokens"));
}

TEST_F(CheckBatchTest, RefusesArraysOfOtherBatches) {
  const std::vector<int32_t> one = {3};
  forward_.kv_lens = one;
  EXPECT_THAT(message(), HasSubstr("kv_lens has 1 entries, the batch has 2"));
  forward_.kv_lens = {};
  forward_.state_slots = one;
  EXPECT_THAT(message(), HasSubstr("state_slots has 1 entries, the batch has 2"));
  forward_.query_start = forward_.query_start.first(2);
  EXPECT_THAT(message(), HasSubstr("query_start has 2 entries, 2 sequences need 3"));
}

TEST_F(CheckBatchTest, DoesNotLookAtMemoryThatTheModelDoesNotHave) {
  page_table_[0] = 99;
  state_slots_[0] = 99;
  forward_.kv_layers = {};
  forward_.state_layers = {};
  EXPECT_TRUE(check_batch(forward_, 5).ok()) << message();
}

TEST(ForwardContextTest, FewRowsEachAreThoseOfSequencesThatHaveAsMany) {
  const std::array<int32_t, 3> context_lens = {5, 0, 9};
  const auto each = [&](std::vector<int32_t> query_start) {
    ForwardContext forward;
    forward.query_start = query_start;
    forward.context_lens = std::span(context_lens).first(query_start.size() - 1);
    return forward.few_rows_each();
  };
  EXPECT_EQ(each({0, 1, 2, 3}), 1);
  EXPECT_EQ(each({0, 4, 8}), 4);
  EXPECT_EQ(each({0, 8}), 8);
  EXPECT_EQ(each({0, 9}), 0) << "not few";
  EXPECT_EQ(each({0, 2, 3}), 0);
  EXPECT_EQ(each({0, 1, 3, 4}), 0);
  EXPECT_EQ(each({0}), 0);
}

}  // namespace
}  // namespace heddle::ops
