// SPDX-License-Identifier: Apache-2.0
#include "ops/device_batch.h"

#include <algorithm>
#include <random>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"

namespace heddle::ops {

namespace {

using ::testing::Each;
using ::testing::ElementsAre;

class DeviceBatchTest : public DeviceTest {
 protected:
  std::vector<int32_t> fetch(const int32_t* array, int64_t count) {
    std::vector<int32_t> values(static_cast<size_t>(count));
    EXPECT_TRUE(stream().copy(values.data(), array, bytes_of(DType::kI32, count)).ok());
    EXPECT_TRUE(stream().synchronize().ok());
    return values;
  }

  // Two sequences of two rows.
  const std::vector<int32_t> ids_ = {3, 4, 5, 6, 0, 0}, positions_ = {9, 10, 0, 1, 0, 0};
  const std::vector<int32_t> query_start_ = {0, 2, 4, 6}, context_lens_ = {9, 0, 0};
  const std::vector<int32_t> page_table_ = {7, 8, 9, 2, 1, 1}, state_slots_ = {4, 5, -1};
  const std::vector<int32_t> logit_rows_ = {1, 3, 0};
  const std::vector<StateSnapshot> snapshots_ = {{.sequence = 1, .num_tokens = 2, .slot = 6}};
  ForwardContext forward_{.query_start = query_start_,
                          .context_lens = context_lens_,
                          .page_tables = {page_table_},
                          .page_table_width = 3,
                          .page_size = 4,
                          .state_slots = state_slots_,
                          .snapshots = snapshots_,
                          .logit_rows = logit_rows_,
                          .num_padding = 1};
  const DeviceBatchSizes sizes_{.max_rows = 6,
                                .max_sequences = 3,
                                .max_pages_per_sequence = 16,
                                .max_snapshots = 1,
                                .max_logit_rows = 3};
};

HEDDLE_ON_EVERY_DEVICE(DeviceBatchTest);

TEST_P(DeviceBatchTest, BringsTheArraysOfABatchWithPadding) {
  DeviceBatchUpload upload = DeviceBatchUpload::create(device(), sizes_).value();
  ASSERT_TRUE(upload.upload(context(), stream(), ids_, positions_, forward_).ok());
  const DeviceBatch& batch = forward_.batch;
  EXPECT_EQ(fetch(upload.ids(), 6), ids_);
  EXPECT_EQ(fetch(upload.positions(), 6), positions_);
  EXPECT_THAT(fetch(batch.row_sequences, 6), ElementsAre(0, 0, 1, 1, -1, -1));
  EXPECT_EQ(fetch(batch.query_start, 4), query_start_);
  EXPECT_EQ(fetch(batch.context_lens, 3), context_lens_);
  EXPECT_EQ(fetch(batch.kv_lens, 3), context_lens_);
  EXPECT_EQ(fetch(batch.state_slots, 3), state_slots_);
  EXPECT_THAT(fetch(batch.snapshot_start, 4), ElementsAre(0, 0, 1, 1));
  EXPECT_EQ(fetch(batch.logit_rows, 3), logit_rows_);
  ASSERT_EQ(batch.page_table_width, 16);
  ASSERT_EQ(batch.page_table_stride, 16);
  EXPECT_THAT(fetch(batch.page_tables[0], 3), ElementsAre(7, 8, 9));
  EXPECT_THAT(fetch(batch.page_tables[0] + 16, 1), ElementsAre(2));
  EXPECT_THAT(fetch(batch.page_tables[0] + 32, 16), Each(0));
}

// Other contents of the table stay there, but where a page is another one.
TEST_P(DeviceBatchTest, SendsThePagesThatChange) {
  DeviceBatchUpload upload = DeviceBatchUpload::create(device(), sizes_).value();
  ASSERT_TRUE(upload.upload(context(), stream(), ids_, positions_, forward_).ok());
  auto* const table = const_cast<int32_t*>(forward_.batch.page_tables[0]);
  const std::vector<int32_t> marks(48, -7);
  ASSERT_TRUE(stream().copy(table, marks.data(), bytes_of(DType::kI32, 48)).ok());
  const std::vector<int32_t> moved = {7, 5, 9, 2, 1, 1};
  forward_.page_tables[0] = moved;
  ASSERT_TRUE(upload.upload(context(), stream(), ids_, positions_, forward_).ok());
  EXPECT_THAT(fetch(table, 4), ElementsAre(-7, 5, -7, -7));
  EXPECT_THAT(fetch(table + 16, 32), Each(-7));
}

TEST_P(DeviceBatchTest, SendsAllPagesBehindABatchThatWasNotBrought) {
  DeviceBatchUpload upload = DeviceBatchUpload::create(device(), sizes_).value();
  ASSERT_TRUE(upload.lay_out(stream(), ids_, positions_, forward_).ok());
  ASSERT_TRUE(upload.upload(context(), stream(), ids_, positions_, forward_).ok());
  EXPECT_THAT(fetch(forward_.batch.page_tables[0], 3), ElementsAre(7, 8, 9));
  EXPECT_THAT(fetch(forward_.batch.page_tables[0] + 16, 1), ElementsAre(2));
}

// Batches of any sizes behind each other, each with pages and window pages at random.
TEST_P(DeviceBatchTest, SmallestTablesFollowThoseOfTheHost) {
  constexpr int32_t kMost = 9, kWidth = 20, kPageSize = 4;
  DeviceBatchUpload upload = DeviceBatchUpload::create(device(), {.max_rows = kMost,
                                                                  .max_sequences = kMost,
                                                                  .max_pages_per_sequence = 32,
                                                                  .num_page_tables = 3,
                                                                  .max_logit_rows = kMost})
                                 .value();
  std::mt19937 random(7);
  const auto below = [&random](size_t end) { return static_cast<int32_t>(random() % end); };
  std::vector<int32_t> main(kMost * kWidth), window(kMost * kWidth);  // of tables 0 and 2
  for (int round = 0; round < 60; ++round) {
    const int32_t num_padding = below(3);
    const int32_t count = 1 + below(kMost - num_padding);  // those of padding included
    const std::vector<int32_t> rows(static_cast<size_t>(count), 0), slots(rows.size(), 1);
    std::vector<int32_t> start(1, 0), lens;
    for (int32_t b = 0; b < count; ++b) {
      start.push_back(b + 1);
      lens.push_back(b < count - num_padding ? below(kWidth * kPageSize) : 0);
    }
    for (int change = below(60); change > 0; --change) {
      main[random() % main.size()] = below(1000);
      window[random() % window.size()] = below(1000);
    }
    ForwardContext forward{.query_start = start,
                           .context_lens = lens,
                           .page_tables = {main, {}, window},
                           .page_table_width = kWidth,
                           .page_size = kPageSize,
                           .state_slots = slots,
                           .num_padding = std::min(num_padding, count)};
    ASSERT_TRUE(upload.upload(context(), stream(), rows, rows, forward).ok());
    const DeviceBatch& batch = forward.batch;
    EXPECT_EQ(batch.page_tables[1], nullptr);
    for (const size_t index : {size_t{0}, size_t{2}}) {
      const int32_t* const table = batch.page_tables[index];
      for (int64_t b = 0; b < forward.num_sequences(); ++b) {
        const bool is_padding = b >= forward.num_real_sequences();
        const int64_t num_pages = is_padding ? 1 : forward.num_pages(b);
        const std::vector<int32_t> want =
            is_padding ? std::vector<int32_t>{0}
                       : std::vector<int32_t>(forward.pages(b, index),
                                              forward.pages(b, index) + num_pages);
        ASSERT_EQ(fetch(table + b * batch.page_table_stride, num_pages), want)
            << "round " << round << ", sequence " << b;
      }
    }
  }
}

TEST_P(DeviceBatchTest, HasNoSlotsForPaddingWhereTheModelHasNoStates) {
  forward_.state_slots = {};
  DeviceBatchUpload upload = DeviceBatchUpload::create(device(), sizes_).value();
  ASSERT_TRUE(upload.upload(context(), stream(), ids_, positions_, forward_).ok());
  EXPECT_THAT(fetch(forward_.batch.state_slots, 3), ElementsAre(0, 0, -1));
}

// Arrays lie at addresses that depend on shapes alone: so that a captured step finds them.
TEST_P(DeviceBatchTest, PutsBatchesOfAShapeInOnePlace) {
  DeviceBatchUpload upload = DeviceBatchUpload::create(device(), sizes_).value();
  ASSERT_TRUE(upload.upload(context(), stream(), ids_, positions_, forward_).ok());
  const DeviceBatch first = forward_.batch;
  forward_.num_padding = 0;
  forward_.snapshots = {};
  const std::vector<int32_t> slots = {4, 5, 6}, table(9, 1);
  forward_.state_slots = slots;
  forward_.page_tables[0] = table;
  ASSERT_TRUE(upload.upload(context(), stream(), positions_, ids_, forward_).ok());
  EXPECT_EQ(forward_.batch.row_sequences, first.row_sequences);
  EXPECT_EQ(forward_.batch.page_tables[0], first.page_tables[0]);
  EXPECT_EQ(forward_.batch.snapshots, first.snapshots);
}

// Several batches on their way; the host writes two blocks in turn.
TEST_P(DeviceBatchTest, SmallestBatchesOnTheirWayAreNotWrittenOver) {
  DeviceBatchUpload upload = DeviceBatchUpload::create(device(), sizes_).value();
  constexpr int32_t kBatches = 20;
  const int64_t num_bytes = bytes_of(DType::kI32, 6);
  const device::Buffer kept = device().allocate(kBatches * num_bytes).value();
  for (int32_t i = 0; i < kBatches; ++i) {
    const std::vector<int32_t> ids(6, i);
    ASSERT_TRUE(upload.upload(context(), stream(), ids, positions_, forward_).ok());
    ASSERT_TRUE(stream().copy(kept.data() + i * num_bytes, upload.ids(), num_bytes).ok());
  }
  const auto all = fetch(reinterpret_cast<const int32_t*>(kept.data()), 6 * kBatches);
  for (size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<int32_t>(i / 6));
}

// More blocks of a kernel than one bring it, and any of them may be the last.
TEST_P(DeviceBatchTest, SmallestRowsAreFedWhenAllOfALargeBatchIsThere) {
  if (!on_cuda()) GTEST_SKIP() << "there the host knows every token";
  constexpr int32_t kRows = 5000;
  DeviceBatchUpload upload = DeviceBatchUpload::create(device(), {.max_rows = kRows,
                                                                  .max_sequences = 1,
                                                                  .max_pages_per_sequence = 2048,
                                                                  .max_logit_rows = 1})
                                 .value();
  const std::vector<int32_t> start = {0, kRows}, lens = {0}, slot = {1}, wanted = {kRows - 1},
                             pages(2048, 1), positions(kRows, 1);
  const std::vector<int32_t> drawn = {70, 71, 72};
  const std::vector<FedRow> fed = {{.row = 0, .sequence = FedRow::kIdAlone, .from = 2},
                                   {.row = 2500, .sequence = FedRow::kIdAlone, .from = 0},
                                   {.row = kRows - 1, .sequence = FedRow::kIdAlone, .from = 1}};
  const auto fed_bytes = static_cast<int64_t>(fed.size() * sizeof(fed[0]));
  const device::Buffer on_device = device().allocate(fed_bytes + 64).value();
  ASSERT_TRUE(stream().copy(on_device.data(), fed.data(), fed_bytes).ok());
  ASSERT_TRUE(stream().copy(on_device.data() + fed_bytes, drawn.data(), 12).ok());
  for (int32_t round = 0; round < 30; ++round) {
    const std::vector<int32_t> ids(kRows, round);
    ForwardContext forward{.query_start = start,
                           .context_lens = lens,
                           .page_tables = {pages},
                           .page_table_width = 2048,
                           .page_size = 4,
                           .state_slots = slot,
                           .logit_rows = wanted};
    ASSERT_TRUE(upload.lay_out(stream(), ids, positions, forward).ok());
    const Status status =
        upload.bring(context(), stream(),
                     {.fed = reinterpret_cast<const FedRow*>(on_device.data()),
                      .num_fed = std::ssize(fed),
                      .drawn = reinterpret_cast<const int32_t*>(on_device.data() + fed_bytes),
                      .rows = upload.rows()});
    ASSERT_TRUE(status.ok()) << status.to_string();
    std::vector<int32_t> want(kRows, round);
    want[0] = 72;
    want[2500] = 70;
    want[kRows - 1] = 71;
    ASSERT_EQ(fetch(upload.ids(), kRows), want) << "round " << round;
  }
}

TEST_P(DeviceBatchTest, NamesTheSizeThatABatchLeaves) {
  DeviceBatchUpload upload = DeviceBatchUpload::create(device(), {.max_rows = 6,
                                                                  .max_sequences = 2,
                                                                  .max_pages_per_sequence = 16,
                                                                  .max_snapshots = 1,
                                                                  .max_logit_rows = 3})
                                 .value();
  EXPECT_EQ(upload.upload(context(), stream(), ids_, positions_, forward_).message(),
            "a batch with 3 sequences, at most 2 fit");
}

}  // namespace

}  // namespace heddle::ops
