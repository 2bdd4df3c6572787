// SPDX-License-Identifier: Apache-2.0
#include "runner/step/pools.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::runner {
namespace {

using enum request::MoveKind;
using request::Move;
using ::testing::Each;
using ::testing::ElementsAre;

constexpr int64_t kNv = 2, kDv = 4, kDk = 6, kNumbers = kNv * kDv * kDk, kWindow = 3 * 5;

class SnapshotPoolsTest : public ::testing::TestWithParam<DType> {
 protected:
  SnapshotPoolsTest() {
    models::CacheNeeds needs;
    for (int layer = 0; layer < 2; ++layer) {
      needs.add_state_layer(
          {{.shape = {3, 5}},
           {.tensor = ops::StateTensor::kRecurrent, .shape = {kNv, kDv, kDk}, .is_rounded = true}});
    }
    pools_ =
        Pools::create(device_, needs,
                      {.sizes = {.num_pages = 4, .num_state_slots = 3, .num_snapshot_slots = 5},
                       .snapshot_dtype = GetParam(),
                       .hidden_width = 8})
            .value();
  }

  // Fills a working slot with numbers of its own; returns the matrices of `layer`.
  std::vector<float> fill(int64_t layer, int32_t slot) {
    const ops::StateLayer& working = pools_.state_layers()[static_cast<size_t>(layer)];
    std::fill_n(working.conv.row<float>(slot), kWindow,
                static_cast<float>(10 * slot + layer) + 0.1f);
    float* matrices = working.recurrent.row<float>(slot);
    for (int64_t i = 0; i < kNumbers; ++i) {
      matrices[i] = std::sin(static_cast<float>(i * (slot + 2) + 100 * layer));
    }
    return {matrices, matrices + kNumbers};
  }

  [[nodiscard]] std::vector<float> matrices(int64_t layer, int32_t slot) const {
    const float* from =
        pools_.state_layers()[static_cast<size_t>(layer)].recurrent.row<float>(slot);
    return {from, from + kNumbers};
  }

  [[nodiscard]] std::vector<float> window(int64_t layer, int32_t slot) const {
    const float* from = pools_.state_layers()[static_cast<size_t>(layer)].conv.row<float>(slot);
    return {from, from + kWindow};
  }

  static std::vector<float> rounded(const std::vector<float>& values) {
    std::vector<std::byte> data(values.size() * sizeof(float));
    std::vector<float> scales(kNv * kDv), to(values.size());
    const ops::SnapshotRows rows{.dtype = GetParam(), .data = data.data(), .scales = scales.data()};
    ops::encode_snapshot_rows(values.data(), kNv * kDv, kDk, rows);
    ops::decode_snapshot_rows(rows, kNv * kDv, kDk, to.data());
    return to;
  }

  Status begin(const std::vector<Move>& moves) {
    return pools_.begin_step(*stream_, context_, moves);
  }

  device::CpuDevice device_{2};
  std::unique_ptr<device::Stream> stream_ = device_.create_stream().value();
  ops::CpuContext context_{device_.pool()};
  Pools pools_;
};

TEST_P(SnapshotPoolsTest, SavesBeforeTheWorkingSlotIsGivenAwayAndRestoresAfterwards) {
  const std::vector<float> first[] = {fill(0, 1), fill(1, 1)};
  const std::vector<float> second[] = {fill(0, 2), fill(1, 2)};
  const std::vector<float> windows[] = {window(0, 1), window(1, 1)};
  ASSERT_TRUE(begin({{.kind = kReleaseSnapshot, .from = 5},
                     {.kind = kSave, .from = 1, .to = 5},
                     {.kind = kSave, .from = 2, .to = 1},
                     {.kind = kReleaseState, .from = 1},
                     {.kind = kZero, .to = 1},
                     {.kind = kRestore, .from = 5, .to = 3}})
                  .ok());
  for (int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(matrices(layer, 3), rounded(first[layer]));
    EXPECT_NE(matrices(layer, 3), first[layer]) << "rounded";
    EXPECT_EQ(window(layer, 3), windows[layer]) << "as it was";
    EXPECT_THAT(matrices(layer, 1), Each(0.0f));
    EXPECT_EQ(matrices(layer, 2), second[layer]) << "saved, and still a working slot";
  }
  ASSERT_TRUE(
      begin({{.kind = kRestore, .from = 1, .to = 3}, {.kind = kRestore, .from = 5, .to = 1}}).ok())
      << "snapshot slots keep what they have";
  for (int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(matrices(layer, 3), rounded(second[layer]));
    EXPECT_EQ(matrices(layer, 1), rounded(first[layer]));
  }
}

TEST_P(SnapshotPoolsTest, KeepsHiddenVectorsBySnapshotSlotAndRefusesSlotsThatAreNotThere) {
  EXPECT_EQ(pools_.hidden().shape, (Shape{6, 8}));
  ASSERT_EQ(pools_.snapshot_layers().size(), 2u);
  EXPECT_EQ(pools_.snapshot_layers()[1].recurrent.dtype, GetParam());
  EXPECT_FALSE(begin({{.kind = kSave, .from = 4, .to = 1}}).ok());
  EXPECT_FALSE(begin({{.kind = kSave, .from = 1, .to = 6}}).ok());
  EXPECT_FALSE(begin({{.table = ops::kMaxPageTables, .from = 1, .to = 2}}).ok());
}

INSTANTIATE_TEST_SUITE_P(EachFormat, SnapshotPoolsTest, ::testing::Values(DType::kBf16, DType::kI8),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

// On the CPU released memory reads as zeros.
TEST(PoolsTest, GivesBackAHiddenVectorWithItsSlot) {
  device::CpuDevice device(1);
  const std::unique_ptr<device::Stream> stream = device.create_stream().value();
  ops::CpuContext context{device.pool()};
  models::CacheNeeds needs;
  needs.add_state_layer({{.shape = {2, 9}}});
  for (const int64_t snapshot_slots : {0, 3}) {
    Pools pools = Pools::create(device, needs,
                                {.sizes = {.num_state_slots = 3,
                                           .num_snapshot_slots = snapshot_slots,
                                           .max_sequences = 2},
                                 .hidden_width = 4096})
                      .value();
    const MutableTensorView rows = pools.hidden();
    ASSERT_EQ(rows.shape, (Shape{4, 4096}));
    std::ranges::fill(std::span(rows.row<float>(0), 4096), 1.0f);
    const std::vector<ops::IdCopy> kept = {{.from = 0, .to = 1}, {.from = 0, .to = 2}, {.to = 3}};
    ASSERT_TRUE(pools.keep_hidden(*stream, rows, kept).ok());
    const std::vector<Move> moves = {
        {.kind = snapshot_slots > 0 ? kReleaseSnapshot : kReleaseState, .from = 2}};
    ASSERT_TRUE(pools.begin_step(*stream, context, moves).ok());
    for (const int64_t slot : {0, 1, 2, 3}) {
      EXPECT_THAT(std::span(rows.row<float>(slot), 4096), Each(slot == 2 ? 0.0f : 1.0f));
    }
    const std::vector<int32_t> slots = {2, 3};
    const TensorView read = pools.kept_hidden(*stream, slots).value();
    ASSERT_EQ(read.shape, (Shape{2, 4096}));
    EXPECT_EQ(read.row<float>(0)[4095], 0);
    EXPECT_EQ(read.row<float>(1)[4095], 1);
  }
}

// Layers of two windows and two that see everything: each table has ids and copies of its own.
TEST(PoolsTest, KeepsTheLayersThatSlideInPagesOfTheirOwn) {
  device::CpuDevice device(1);
  models::CacheNeeds needs;
  for (const int64_t window : {0, 8, 0, 20})
    needs.add_kv_layer({.num_heads = 1, .head_dim = 2}, window);
  EXPECT_THAT(windows_of_tables(needs, 100), ElementsAre(8, 20));
  EXPECT_THAT(windows_of_tables(needs, 20), ElementsAre(8)) << "one holds the whole context";
  ASSERT_TRUE(mixes_windows(needs));
  Pools pools =
      Pools::create(
          device, needs,
          {.sizes = {.num_pages = 6,
                     .page_size = 4,
                     .windows = {{.num_pages = 3, .window = 8}, {.num_pages = 4, .window = 20}}}})
          .value();
  const std::span<const ops::KvLayer> layers = pools.kv_layers();
  ASSERT_EQ(layers.size(), 4U);
  EXPECT_EQ(layers[0].k.shape[0], 7);
  EXPECT_EQ(layers[1].k.shape[0], 4);
  EXPECT_EQ(layers[1].table, 1U);
  EXPECT_EQ(layers[2].table, 0U);
  EXPECT_EQ(layers[3].table, 2U);
  EXPECT_EQ(layers[3].k.shape[0], 5);
  EXPECT_NE(layers[0].k.data, layers[2].k.data);

  const auto fill = [](const MutableTensorView& rows, int32_t page, float value) {
    std::fill_n(rows.row<float>(page), rows.row_stride, value);
  };
  for (const ops::KvLayer& layer : layers)
    fill(layer.k, 2, layer.k.data == layers[1].k.data ? 7 : 5);
  const std::vector<Move> moves = {
      {.from = 2, .to = 6}, {.table = 1, .from = 2, .to = 3}, {.table = 2, .from = 2, .to = 4}};
  const std::unique_ptr<device::Stream> stream = device.create_stream().value();
  ops::CpuContext context{device.pool()};
  ASSERT_TRUE(pools.begin_step(*stream, context, moves).ok());
  EXPECT_EQ(layers[0].k.row<float>(6)[0], 5);
  EXPECT_EQ(layers[2].k.row<float>(6)[7], 5);
  EXPECT_EQ(layers[1].k.row<float>(3)[7], 7);
  EXPECT_EQ(layers[3].k.row<float>(4)[7], 5);
  EXPECT_EQ(layers[0].k.row<float>(3)[0], 0);
}

// The network that drafts has rows of its own by the model's page ids, which are copied with them.
TEST(PoolsTest, KeepsTheRowsOfANetworkThatDraftsInTheModelsPages) {
  device::CpuDevice device(1);
  models::CacheNeeds needs, drafts;
  for (int layer = 0; layer < 2; ++layer) needs.add_kv_layer({.num_heads = 1, .head_dim = 2}, 0);
  drafts.add_kv_layer({.num_heads = 3, .head_dim = 4}, 0);
  Pools pools = Pools::create(device, needs,
                              {.sizes = {.num_pages = 6, .page_size = 4}, .draft_needs = drafts})
                    .value();
  ASSERT_EQ(pools.kv_layers().size(), 2U);
  ASSERT_EQ(pools.draft_kv_layers().size(), 1U);
  const MutableTensorView& rows = pools.draft_kv_layers()[0].k;
  EXPECT_EQ(rows.shape[0], 7);
  EXPECT_EQ(rows.row_stride, 4 * 3 * 4);
  std::fill_n(rows.row<float>(2), rows.row_stride, 3.0f);
  const std::vector<Move> moves = {{.from = 2, .to = 6}};
  const std::unique_ptr<device::Stream> stream = device.create_stream().value();
  ops::CpuContext context{device.pool()};
  ASSERT_TRUE(pools.begin_step(*stream, context, moves).ok());
  EXPECT_EQ(rows.row<float>(6)[47], 3);
}

// Every group has a pool of its own; an id is copied, zeroed, saved and restored in all of them.
TEST(PoolsTest, CarriesOutAPlanInGroupsOfDifferentShapes) {
  device::CpuDevice device(2);
  models::CacheNeeds needs;
  needs.add_kv_layer({.num_heads = 1, .head_dim = 2}, 0);
  needs.add_kv_layer({.num_heads = 2, .head_dim = 6, .value_dim = 4}, 0);
  needs.add_kv_layer({.num_heads = 1, .head_dim = 10, .value_dim = 0}, 0);
  needs.add_state_layer({{.shape = {2, 9}}});
  needs.add_state_layer({{.tensor = ops::StateTensor::kRecurrent, .shape = {3, 5, 4}}});
  needs.add_state_layer(
      {{.shape = {1, 7}},
       {.tensor = ops::StateTensor::kRecurrent, .shape = {2, 3, 8}, .is_rounded = true}});
  needs.add_state_layer({{.shape = {2, 9}}});
  ASSERT_EQ(needs.state_groups.size(), 3U);
  Pools pools =
      Pools::create(
          device, needs,
          {.sizes = {.num_pages = 6, .page_size = 4, .num_state_slots = 3, .num_snapshot_slots = 2},
           .snapshot_dtype = DType::kI8})
          .value();
  std::vector<MutableTensorView> pages, states;
  for (const ops::KvLayer& layer : pools.kv_layers()) {
    for (const MutableTensorView& view : {layer.k, layer.v}) {
      if (view.data != nullptr) pages.push_back(view);
    }
  }
  for (const ops::StateLayer& layer : pools.state_layers()) {
    for (const MutableTensorView& view : {layer.conv, layer.recurrent}) {
      if (view.data != nullptr) states.push_back(view);
    }
  }
  ASSERT_EQ(pages.size(), 5U);
  ASSERT_EQ(states.size(), 5U);
  EXPECT_EQ(pages[2].shape, (Shape{7, 4, 2, 6}));
  EXPECT_EQ(pages[3].shape, (Shape{7, 4, 2, 4}));
  EXPECT_EQ(states[1].shape, (Shape{4, 3, 5, 4}));
  EXPECT_EQ(states[4].shape, (Shape{4, 2, 9}));
  const auto fill = [](const std::vector<MutableTensorView>& views, int32_t id) {
    for (size_t i = 0; i < views.size(); ++i) {
      std::fill_n(views[i].row<float>(id), views[i].row_stride, static_cast<float>(10 * id) + 0.5f);
    }
  };
  const auto holds = [](const std::vector<MutableTensorView>& views, int32_t id, float value) {
    for (const MutableTensorView& view : views) {
      EXPECT_THAT(std::span(view.row<float>(id), static_cast<size_t>(view.row_stride)),
                  Each(::testing::FloatNear(value, 1e-5f)))
          << view.shape.to_string() << " id " << id;
    }
  };
  fill(pages, 2);
  for (const int32_t slot : {1, 2, 3}) fill(states, slot);
  const std::unique_ptr<device::Stream> stream = device.create_stream().value();
  ops::CpuContext context{device.pool()};
  const std::vector<Move> moves = {{.kind = kSave, .from = 1, .to = 2},
                                   {.kind = kReleaseState, .from = 1},
                                   {.kind = kZero, .to = 1},
                                   {.kind = kRestore, .from = 2, .to = 3},
                                   {.from = 2, .to = 6}};
  ASSERT_TRUE(pools.begin_step(*stream, context, moves).ok());
  holds(pages, 6, 20.5f);
  holds(pages, 5, 0);
  holds(states, 1, 0);
  holds(states, 2, 20.5f);
  holds(states, 3, 10.5f);
  const std::vector<ops::IdCopy> accepted = {{.from = 3, .to = 2}};
  ASSERT_TRUE(pools.accept_drafts(*stream, context, accepted).ok());
  holds(states, 2, 10.5f);
  const std::vector<ops::IdCopy> rows = {{.from = 6 * 4 + 1, .to = 3 * 4 + 3}};
  ASSERT_TRUE(pools.move_rows(*stream, context, {rows}).ok());
  for (const MutableTensorView& view : pages) {
    const int64_t row = view.row_stride / 4;
    EXPECT_EQ(view.row<float>(3)[3 * row], 20.5f);
    EXPECT_EQ(view.row<float>(3)[3 * row - 1], 0);
  }
  ASSERT_TRUE(pools.begin_step(*stream, context, std::vector<Move>{{.kind = kZero, .to = 3}}).ok());
  holds(states, 3, 0);
}

}  // namespace
}  // namespace heddle::runner
