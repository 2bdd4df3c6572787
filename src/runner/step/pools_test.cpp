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

using ::testing::Each;

constexpr int64_t kNv = 2, kDv = 4, kDk = 6, kNumbers = kNv * kDv * kDk, kWindow = 3 * 5;

class SnapshotPoolsTest : public ::testing::TestWithParam<DType> {
 protected:
  SnapshotPoolsTest() {
    const models::CacheNeeds needs{.num_state_layers = 2,
                                   .conv_channels = 5,
                                   .conv_width = 4,
                                   .num_value_heads = kNv,
                                   .value_dim = kDv,
                                   .key_dim = kDk};
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

  Status begin(const request::BatchPlan& plan) {
    return pools_.begin_step(*stream_, context_, plan);
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
  request::BatchPlan plan;
  plan.unused_snapshot_slots = {5};
  plan.save_snapshots = {{.from = 1, .to = 5}, {.from = 2, .to = 1}};
  plan.unused_state_slots = {1};
  plan.zero_state_slots = {1};
  plan.restore_snapshots = {{.from = 5, .to = 3}};
  ASSERT_TRUE(begin(plan).ok());
  for (int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(matrices(layer, 3), rounded(first[layer]));
    EXPECT_NE(matrices(layer, 3), first[layer]) << "rounded";
    EXPECT_EQ(window(layer, 3), windows[layer]) << "as it was";
    EXPECT_THAT(matrices(layer, 1), Each(0.0f));
    EXPECT_EQ(matrices(layer, 2), second[layer]) << "saved, and still a working slot";
  }
  plan.clear();
  plan.restore_snapshots = {{.from = 1, .to = 3}, {.from = 5, .to = 1}};
  ASSERT_TRUE(begin(plan).ok()) << "snapshot slots keep what they have";
  for (int64_t layer = 0; layer < 2; ++layer) {
    EXPECT_EQ(matrices(layer, 3), rounded(second[layer]));
    EXPECT_EQ(matrices(layer, 1), rounded(first[layer]));
  }
}

TEST_P(SnapshotPoolsTest, KeepsHiddenVectorsBySnapshotSlotAndRefusesSlotsThatAreNotThere) {
  EXPECT_EQ(pools_.hidden().shape, (Shape{6, 8}));
  ASSERT_EQ(pools_.snapshot_layers().size(), 2u);
  EXPECT_EQ(pools_.snapshot_layers()[1].recurrent.dtype, GetParam());
  request::BatchPlan plan;
  plan.save_snapshots = {{.from = 4, .to = 1}};
  EXPECT_FALSE(begin(plan).ok());
  plan.save_snapshots = {{.from = 1, .to = 6}};
  EXPECT_FALSE(begin(plan).ok());
}

INSTANTIATE_TEST_SUITE_P(EachFormat, SnapshotPoolsTest, ::testing::Values(DType::kBf16, DType::kI8),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

// A layer that slides and two that do not: two pools, each with ids and copies of its own.
TEST(PoolsTest, KeepsTheLayersThatSlideInPagesOfTheirOwn) {
  device::CpuDevice device(1);
  const models::CacheNeeds needs{
      .num_kv_layers = 3, .num_kv_heads = 1, .head_dim = 2, .kv_windows = {0, 8, 0}};
  ASSERT_TRUE(mixes_windows(needs));
  Pools pools = Pools::create(device, needs,
                              {.sizes = {.num_pages = 6,
                                         .page_size = 4,
                                         .window_pages = {.num_pages = 3, .window = 8}}})
                    .value();
  const std::span<const ops::KvLayer> layers = pools.kv_layers();
  ASSERT_EQ(layers.size(), 3U);
  EXPECT_EQ(layers[0].k.shape[0], 7);
  EXPECT_EQ(layers[1].k.shape[0], 4);
  EXPECT_EQ(layers[1].group, ops::PageGroup::kWindow);
  EXPECT_EQ(layers[2].group, ops::PageGroup::kMain);
  EXPECT_NE(layers[0].k.data, layers[2].k.data);

  const auto fill = [](const MutableTensorView& rows, int32_t page, float value) {
    std::fill_n(rows.row<float>(page), rows.row_stride, value);
  };
  for (const ops::KvLayer& layer : layers)
    fill(layer.k, 2, layer.k.data == layers[1].k.data ? 7 : 5);
  request::BatchPlan plan;
  plan.copy_pages = {{.from = 2, .to = 6}};
  plan.copy_window_pages = {{.from = 2, .to = 3}};
  const std::unique_ptr<device::Stream> stream = device.create_stream().value();
  ops::CpuContext context{device.pool()};
  ASSERT_TRUE(pools.begin_step(*stream, context, plan).ok());
  EXPECT_EQ(layers[0].k.row<float>(6)[0], 5);
  EXPECT_EQ(layers[2].k.row<float>(6)[7], 5);
  EXPECT_EQ(layers[1].k.row<float>(3)[7], 7);
  EXPECT_EQ(layers[0].k.row<float>(3)[0], 0);
}

// The network that drafts has rows of its own by the model's page ids, which are copied with them.
TEST(PoolsTest, KeepsTheRowsOfANetworkThatDraftsInTheModelsPages) {
  device::CpuDevice device(1);
  const models::CacheNeeds needs{.num_kv_layers = 2, .num_kv_heads = 1, .head_dim = 2};
  const models::CacheNeeds drafts{.num_kv_layers = 1, .num_kv_heads = 3, .head_dim = 4};
  Pools pools = Pools::create(device, needs,
                              {.sizes = {.num_pages = 6, .page_size = 4}, .draft_needs = drafts})
                    .value();
  ASSERT_EQ(pools.kv_layers().size(), 2U);
  ASSERT_EQ(pools.draft_kv_layers().size(), 1U);
  const MutableTensorView& rows = pools.draft_kv_layers()[0].k;
  EXPECT_EQ(rows.shape[0], 7);
  EXPECT_EQ(rows.row_stride, 4 * 3 * 4);
  std::fill_n(rows.row<float>(2), rows.row_stride, 3.0f);
  request::BatchPlan plan;
  plan.copy_pages = {{.from = 2, .to = 6}};
  const std::unique_ptr<device::Stream> stream = device.create_stream().value();
  ops::CpuContext context{device.pool()};
  ASSERT_TRUE(pools.begin_step(*stream, context, plan).ok());
  EXPECT_EQ(rows.row<float>(6)[47], 3);
}

}  // namespace
}  // namespace heddle::runner
