// SPDX-License-Identifier: Apache-2.0
// States that leave the fp32 working slots: whole, and as snapshots of a step.
#include "ops/linear_attention/state_snapshot.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/linear_attention/causal_conv1d.h"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::ops {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kNv = 4, kDv = 24, kDk = 16, kWindow = 3, kChannels = 20;
constexpr int64_t kRows = kNv * kDv;

void fill_random(Tensor& tensor, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::ranges::generate(tensor.span<float>(), [&] { return normal(random); });
}

// One layer with five working slots and four snapshot slots, filled with different numbers.
struct Layer {
  Layer(DType dtype, uint64_t seed)
      : conv({5, kWindow, kChannels}, DType::kF32),
        recurrent({5, kNv, kDv, kDk}, DType::kF32),
        snapshot_conv({4, kWindow, kChannels}, DType::kF32),
        snapshot_recurrent({4, kNv, kDv, kDk}, dtype),
        scales({4, kNv, kDv}, DType::kF32) {
    fill_random(conv, seed);
    fill_random(recurrent, seed + 1);
  }

  StateLayer working() { return {.conv = conv.view(), .recurrent = recurrent.view()}; }

  SnapshotLayer snapshots() {
    return {.conv = snapshot_conv.view(),
            .recurrent = snapshot_recurrent.view(),
            .scales = scales.view()};
  }

  std::vector<float> window(int64_t slot) {
    const float* from = conv.view().row<float>(slot);
    return {from, from + kWindow * kChannels};
  }

  std::vector<float> matrices(int64_t slot) {
    const float* from = recurrent.view().row<float>(slot);
    return {from, from + kRows * kDk};
  }

  std::vector<float> snapshot_window(int64_t slot) {
    const float* from = snapshot_conv.view().row<float>(slot);
    return {from, from + kWindow * kChannels};
  }

  std::vector<float> snapshot_matrices(int64_t slot) {
    std::vector<float> to(kRows * kDk);
    decode_snapshot_rows(snapshot_rows(snapshots(), slot, 0), kRows, kDk, to.data());
    return to;
  }

  Tensor conv, recurrent, snapshot_conv, snapshot_recurrent, scales;
};

// Numbers after they were saved and restored.
std::vector<float> rounded(const std::vector<float>& values, DType dtype) {
  std::vector<std::byte> data(static_cast<size_t>(bytes_of(dtype, std::ssize(values))));
  std::vector<float> scales(kRows), to(values.size());
  const SnapshotRows rows{.dtype = dtype, .data = data.data(), .scales = scales.data()};
  encode_snapshot_rows(values.data(), kRows, kDk, rows);
  decode_snapshot_rows(rows, kRows, kDk, to.data());
  return to;
}

class StateSnapshotTest : public ::testing::TestWithParam<DType> {
 protected:
  device::ThreadPool pool_{3};
  CpuContext context_{pool_};
};

TEST_P(StateSnapshotTest, CopiesOneSlotInAllLayersAndBack) {
  Layer layers[] = {Layer(GetParam(), 1), Layer(GetParam(), 7)};
  const std::vector<StateLayer> working = {layers[0].working(), layers[1].working()};
  const std::vector<SnapshotLayer> snapshots = {layers[0].snapshots(), layers[1].snapshots()};
  const StateCopyArgs there{
      .working = working, .snapshots = snapshots, .working_slot = 2, .snapshot_slot = 3};
  ASSERT_TRUE(save_snapshot(context_, there).ok());
  for (Layer& layer : layers) {
    EXPECT_EQ(layer.snapshot_window(3), layer.window(2));
    EXPECT_EQ(layer.snapshot_matrices(3), rounded(layer.matrices(2), GetParam()));
    for (const int64_t other : {0, 1, 2}) {
      EXPECT_THAT(layer.snapshot_window(other), Each(0.0f));
      EXPECT_THAT(layer.snapshot_matrices(other), Each(0.0f));
    }
  }
  const std::vector<float> before[] = {layers[0].matrices(3), layers[1].matrices(3)};
  ASSERT_TRUE(
      restore_snapshot(
          context_,
          {.working = working, .snapshots = snapshots, .working_slot = 4, .snapshot_slot = 3})
          .ok());
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(layers[i].window(4), layers[i].window(2));
    EXPECT_EQ(layers[i].matrices(4), rounded(layers[i].matrices(2), GetParam()));
    EXPECT_EQ(layers[i].matrices(3), before[i]) << "another slot";
  }
}

TEST_P(StateSnapshotTest, SaysWhatDoesNotFit) {
  Layer layer(GetParam(), 1);
  const std::vector<StateLayer> working = {layer.working()};
  std::vector<SnapshotLayer> snapshots = {layer.snapshots()};
  const auto message = [&](int32_t from, int32_t to) {
    return save_snapshot(context_, {.working = working,
                                    .snapshots = snapshots,
                                    .working_slot = from,
                                    .snapshot_slot = to})
        .to_string();
  };
  EXPECT_THAT(message(5, 1), HasSubstr("working slot 5 of 5"));
  EXPECT_THAT(message(1, 4), HasSubstr("snapshot slot 4 of 4"));
  snapshots[0].conv = layer.conv.view();
  EXPECT_THAT(message(1, 1), HasSubstr("snapshot slots"));
  snapshots.clear();
  EXPECT_THAT(message(1, 1), HasSubstr("1 working layers and 0 of snapshots"));
}

// A snapshot that a step writes equals its working slot saved afterwards.
TEST_P(StateSnapshotTest, RoundsSnapshotsOfAStepOnceFromItsAccumulators) {
  constexpr int64_t kTokens = 100, kKeyHeads = 2;
  constexpr int64_t kQkv = 2 * kKeyHeads * kDk + kNv * kDv;
  Tensor qkv({kTokens, kQkv}, DType::kF32), a({kTokens, kNv}, DType::kF32);
  Tensor decay({kNv}, DType::kF32), bias({kNv}, DType::kF32), y({kTokens, kNv * kDv}, DType::kF32);
  Tensor x({kTokens, kChannels}, DType::kF32), conv_y({kTokens, kChannels}, DType::kF32);
  Tensor weight({kChannels, kWindow + 1}, DType::kF32);
  fill_random(qkv, 11);
  fill_random(a, 12);
  fill_random(x, 13);
  fill_random(weight, 14);
  std::ranges::fill(decay.span<float>(), -0.3f);
  const auto run = [&](Layer& layer, int64_t count, std::vector<StateSnapshot> snapshots) {
    const std::vector<int32_t> query_start = {0, static_cast<int32_t>(count)};
    const std::vector<int32_t> context_lens = {0}, slots = {1};
    ForwardContext forward;
    forward.query_start = query_start;
    forward.context_lens = context_lens;
    forward.state_slots = slots;
    forward.snapshots = snapshots;
    std::vector<std::byte> workspace(static_cast<size_t>(gated_delta_rule_workspace_bytes(
        context_, {.max_tokens = count, .key_dim = kDk, .value_dim = kDv})));
    const auto rows = [count](Tensor& tensor) {
      MutableTensorView view = tensor.view();
      view.shape = Shape{count, view.shape[1]};
      return view;
    };
    Status status = gated_delta_rule(context_, {.qkv = rows(qkv),
                                                .a = rows(a),
                                                .b = rows(a),
                                                .neg_exp_a_log = decay.view(),
                                                .dt_bias = bias.view(),
                                                .y = rows(y),
                                                .num_key_heads = kKeyHeads,
                                                .key_dim = kDk,
                                                .value_dim = kDv,
                                                .state = layer.working(),
                                                .snapshots = layer.snapshots(),
                                                .forward = &forward,
                                                .workspace = workspace});
    ASSERT_TRUE(status.ok()) << status.to_string();
    status = causal_conv1d(context_, {.x = rows(x),
                                      .weight = weight.view(),
                                      .y = rows(conv_y),
                                      .state = layer.working(),
                                      .snapshots = layer.snapshots(),
                                      .forward = &forward});
    ASSERT_TRUE(status.ok()) << status.to_string();
  };
  for (const bool exact : {false, true}) {
    context_.exact = exact;
    Layer layer(GetParam(), 1), shorter(GetParam(), 1);
    const std::vector<float> other = layer.matrices(2);
    run(layer, kTokens, {{.num_tokens = 64, .slot = 2}, {.num_tokens = kTokens, .slot = 3}});
    EXPECT_EQ(layer.snapshot_matrices(3), rounded(layer.matrices(1), GetParam()));
    EXPECT_EQ(layer.snapshot_window(3), layer.window(1));
    EXPECT_EQ(layer.matrices(2), other) << "a snapshot slot is no working slot";
    run(shorter, 64, {});
    EXPECT_EQ(layer.snapshot_matrices(2), rounded(shorter.matrices(1), GetParam()));
    EXPECT_EQ(layer.snapshot_window(2), shorter.window(1));
    EXPECT_THAT(layer.snapshot_matrices(1), Each(0.0f));
  }
}

INSTANTIATE_TEST_SUITE_P(EachFormat, StateSnapshotTest,
                         ::testing::Values(DType::kF32, DType::kBf16, DType::kI8),
                         [](const auto& dtype) { return std::string(to_string(dtype.param)); });

}  // namespace
}  // namespace heddle::ops
