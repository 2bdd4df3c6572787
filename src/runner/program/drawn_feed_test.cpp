// SPDX-License-Identifier: Apache-2.0
#include "runner/program/drawn_feed.h"

#include <vector>

#include <gtest/gtest.h>

#include "ops/bring_batch.h"
#include "runner/program/device_ints_fixture.h"

namespace heddle::runner {
namespace {

class DrawnFeedTest : public DeviceIntsTest {
 protected:
  // Feeds rows that lie on the device already.
  Status bring(DrawnFeed& feed, const ops::DeviceBatchRows& rows) {
    HEDDLE_ASSIGN_OR_RETURN(const ops::FeedDrawnArgs fed, feed.prepare(stream(), rows));
    return ops::bring_batch_cuda(static_cast<ops::CudaContext&>(context()), {.feed = fed});
  }
};

HEDDLE_ON_EVERY_DEVICE(DrawnFeedTest);

// Steps that are fed alike, and some that are not: each finds its own tokens.
TEST_P(DrawnFeedTest, SmallestStepsGetTheTokensOfTheOnesBefore) {
  if (GetParam() == device::DeviceKind::kCpu) GTEST_SKIP() << "there the host knows every token";
  DrawnFeed feed(device(), 2);
  const Ints names = {70, 71, 72, 73, 74, 75, 76, 77, 78, 79};
  const device::Buffer ids_of_drawn = uploaded(names);
  for (int step = 0; step < 12; ++step) {
    SCOPED_TRACE(step);
    const bool named = step % 4 == 3;
    const int32_t from = step < 5 ? 1 : 2;  // another row from then on
    const TokenId ending = step < 8 ? 9 : 4;
    const Ints drawn = {step % 10, 4, step == 6 ? -1 : 9};
    const device::Buffer drawn_on_device = uploaded(drawn);
    const device::Buffer ids = uploaded({1, 2, 3}), sequences = uploaded({0, 1, 2}),
                         states = uploaded({5, 6, 7});
    feed.begin(3, reinterpret_cast<const int32_t*>(drawn_on_device.data()),
               named ? reinterpret_cast<const int32_t*>(ids_of_drawn.data()) : nullptr);
    feed.add({.row = 0, .sequence = 0, .logit_row = 0, .from = 0}, {});
    feed.add({.row = 2, .sequence = 2, .logit_row = 2, .from = from}, {&ending, 1});
    const Status status = bring(feed, {.ids = on_device(ids),
                                       .row_sequences = on_device(sequences),
                                       .state_slots = on_device(states)});
    ASSERT_TRUE(status.ok()) << status.to_string();
    const auto id_of = [&](int32_t token) {
      return named ? names[static_cast<size_t>(token)] : token;
    };
    const int32_t last = drawn[static_cast<size_t>(from)];
    const bool ended = last == ending || last < 0;
    EXPECT_EQ(downloaded(on_device(ids), 3), (Ints{id_of(drawn[0]), 2, ended ? 0 : id_of(last)}));
    EXPECT_EQ(downloaded(on_device(sequences), 3), (Ints{0, 1, ended ? -1 : 2}));
    EXPECT_EQ(downloaded(on_device(states), 3), (Ints{5, 6, ended ? -1 : 7}));
    EXPECT_EQ(downloaded(feed.ended(), 3), (Ints{0, 0, ended ? 1 : 0}));
  }
}

// A draft without a token is any token; its sequence goes on.
TEST_P(DrawnFeedTest, SmallestDraftsEndNoSequence) {
  if (GetParam() == device::DeviceKind::kCpu) GTEST_SKIP() << "there the host knows every token";
  DrawnFeed feed(device(), 1);
  const device::Buffer drawn = uploaded({7, 3, -1, 5});
  const device::Buffer ids = uploaded({40, 41, 42, 43}), sequences = uploaded({0, 0, 0, 1}),
                       states = uploaded({5, 6});
  feed.begin(4, on_device(drawn));
  feed.add({.row = 1, .sequence = ops::FedRow::kIdAlone, .from = 3}, {});
  feed.add({.row = 2, .sequence = ops::FedRow::kIdAlone, .from = 2}, {});
  const Status status = bring(feed, {.ids = on_device(ids),
                                     .row_sequences = on_device(sequences),
                                     .state_slots = on_device(states)});
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(downloaded(on_device(ids), 4), (Ints{40, 5, 0, 43}));
  EXPECT_EQ(downloaded(on_device(sequences), 4), (Ints{0, 0, 0, 1}));
  EXPECT_EQ(downloaded(on_device(states), 2), (Ints{5, 6}));
  EXPECT_EQ(downloaded(feed.ended(), 4), (Ints{0, 0, 0, 0}));
}

// Rows that were laid out as if all drafts before them held go back to where the text goes on.
TEST_P(DrawnFeedTest, SmallestPlacesMoveBackByTheDraftsThatDoNotHold) {
  if (GetParam() == device::DeviceKind::kCpu) GTEST_SKIP() << "there the host knows every token";
  DrawnFeed feed(device(), 1);
  const device::Buffer drawn = uploaded({7, 3}), missing = uploaded({2, 0, 1});
  const device::Buffer ids = uploaded({0, 0, 0}), sequences = uploaded({0, 1, 2}),
                       states = uploaded({5, 6, 7}), positions = uploaded({20, 30, 40}),
                       lens = uploaded({20, 30, 40}), kv_lens = uploaded({21, 31, 41}),
                       wanted = uploaded({8, 9});
  feed.begin(3, on_device(drawn), nullptr, on_device(missing));
  feed.add({.row = 0, .sequence = 0, .logit_row = 0, .from = 1, .missing_of = 0}, {});
  feed.add({.row = 1, .sequence = 1, .logit_row = 1, .from = 0, .missing_of = 1}, {});
  feed.add({.row = 1, .sequence = ops::FedRow::kWanted, .missing_of = 2}, {});
  const Status status = bring(feed, {.ids = on_device(ids),
                                     .positions = on_device(positions),
                                     .row_sequences = on_device(sequences),
                                     .state_slots = on_device(states),
                                     .context_lens = on_device(lens),
                                     .kv_lens = on_device(kv_lens),
                                     .logit_rows = on_device(wanted)});
  ASSERT_TRUE(status.ok()) << status.to_string();
  EXPECT_EQ(downloaded(on_device(ids), 3), (Ints{3, 7, 0}));
  EXPECT_EQ(downloaded(on_device(positions), 3), (Ints{18, 30, 40}));
  EXPECT_EQ(downloaded(on_device(lens), 3), (Ints{18, 30, 40}));
  EXPECT_EQ(downloaded(on_device(kv_lens), 3), (Ints{19, 31, 41}));
  EXPECT_EQ(downloaded(on_device(wanted), 2), (Ints{8, 8}));
  EXPECT_EQ(downloaded(on_device(sequences), 3), (Ints{0, 1, 2}));
}

}  // namespace
}  // namespace heddle::runner
