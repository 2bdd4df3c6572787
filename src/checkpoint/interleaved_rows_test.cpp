// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/interleaved_rows.h"

#include <gtest/gtest.h>

namespace heddle::checkpoint {
namespace {

// The hub row that becomes our row `target`.
int64_t source_of(const std::vector<RowRun>& runs, int64_t target) {
  for (const RowRun& run : runs) {
    if (target >= run.target_row && target < run.target_row + run.num_rows) {
      return run.source_row + (target - run.target_row) * run.source_step;
    }
  }
  return -1;
}

int64_t total_rows(const std::vector<RowRun>& runs) {
  int64_t rows = 0;
  for (const RowRun& run : runs) rows += run.num_rows;
  return rows;
}

constexpr DeltaNetHeads kPublished{
    .num_key_heads = 16, .num_value_heads = 32, .key_dim = 128, .value_dim = 128};

TEST(InterleavedRowsTest, FindsThePublishedQkvzRows) {
  const std::vector<RowRun> runs = deinterleave_qkvz_rows(kPublished);
  EXPECT_EQ(total_rows(runs), 12288);
  // Ours: queries from 0, keys from 2048, values from 4096, gates from 8192.
  EXPECT_EQ(source_of(runs, 4096 + 5 * 128), 1920);          // value head 5, channel 0
  EXPECT_EQ(source_of(runs, 8192 + 31 * 128 + 127), 12287);  // gate head 31, channel 127
  for (int64_t j = 0; j < 32; ++j) {
    for (const int64_t c : {0, 1, 127}) {
      const int64_t h = j / 2;
      const int64_t m = j % 2;
      EXPECT_EQ(source_of(runs, 4096 + j * 128 + c), 768 * h + 256 + 128 * m + c);
      EXPECT_EQ(source_of(runs, 8192 + j * 128 + c), 768 * h + 512 + 128 * m + c);
      EXPECT_EQ(source_of(runs, h * 128 + c), 768 * h + c);
      EXPECT_EQ(source_of(runs, 2048 + h * 128 + c), 768 * h + 128 + c);
    }
  }
}

TEST(InterleavedRowsTest, FindsThePublishedBaRows) {
  const std::vector<RowRun> runs = deinterleave_ba_rows(kPublished);
  EXPECT_EQ(total_rows(runs), 64);
  EXPECT_EQ(source_of(runs, 32 + 5), 11);  // a of head 5
  for (int64_t j = 0; j < 32; ++j) {
    EXPECT_EQ(source_of(runs, j), 4 * (j / 2) + j % 2);
    EXPECT_EQ(source_of(runs, 32 + j), 4 * (j / 2) + 2 + j % 2);
  }
}

TEST(InterleavedRowsTest, AllowsKeyAndValueHeadsOfDifferentWidth) {
  const std::vector<RowRun> runs = deinterleave_qkvz_rows(
      {.num_key_heads = 2, .num_value_heads = 6, .key_dim = 3, .value_dim = 5});
  const int64_t group = 2 * 3 + 2 * 3 * 5;
  EXPECT_EQ(total_rows(runs), 2 * group);
  EXPECT_EQ(source_of(runs, 3), group);          // query of key head 1
  EXPECT_EQ(source_of(runs, 6 + 3), group + 3);  // key of key head 1
  EXPECT_EQ(source_of(runs, 12 + 4 * 5 + 2),
            group + 6 + 7);  // value head 4 is the second of group 1
  EXPECT_EQ(source_of(runs, 12 + 30 + 4 * 5), group + 6 + 15 + 5);
}

TEST(InterleavedRowsTest, SplitsQueriesFromTheirGates) {
  const std::vector<RowRun> runs = split_query_gate_rows(16, 256);
  EXPECT_EQ(total_rows(runs), 8192);
  EXPECT_EQ(source_of(runs, 3 * 256 + 7), 3 * 512 + 7);
  EXPECT_EQ(source_of(runs, 4096 + 3 * 256 + 7), 3 * 512 + 256 + 7);
  EXPECT_EQ(source_of(shifted(runs, 100), 100 + 256), 512);
}

TEST(InterleavedRowsTest, TakesGateRowsFromEvenAndUpRowsFromOddPlaces) {
  const std::vector<RowRun> runs = split_gate_up_rows(2, 3);
  EXPECT_EQ(runs.size(), 4u);
  EXPECT_EQ(total_rows(runs), 12);
  const std::vector<int64_t> expected{0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
  for (int64_t row = 0; row < 12; ++row) {
    EXPECT_EQ(source_of(runs, row), expected[static_cast<size_t>(row)]) << row;
  }
}

}  // namespace
}  // namespace heddle::checkpoint
