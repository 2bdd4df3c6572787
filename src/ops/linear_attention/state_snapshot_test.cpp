// SPDX-License-Identifier: Apache-2.0
// States that leave the fp32 working slots: whole, and as snapshots of a step.
#include "ops/linear_attention/state_snapshot.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/linear_attention/causal_conv1d.h"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::ops {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr int64_t kNv = 4, kDv = 24, kDk = 16, kWindow = 3, kChannels = 276;
constexpr int64_t kRows = kNv * kDv;

void fill_random(Tensor& tensor, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::ranges::generate(tensor.span<float>(), [&] { return normal(random); });
}

// One layer with five working slots and four snapshot slots, filled with different numbers, on the
// host and on a device.
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

  StateLayer working() { return {.conv = device[0].view(), .recurrent = device[1].view()}; }

  SnapshotLayer snapshots() {
    return {.conv = device[2].view(), .recurrent = device[3].view(), .scales = device[4].view()};
  }

  // Appends the window and the matrices, with their snapshots.
  void add_parts(std::vector<StatePartView>& parts) {
    parts.push_back(state_part(device[0].view(), device[2].view()));
    parts.push_back(state_part(device[1].view(), device[3].view(), device[4].view()));
  }

  [[nodiscard]] std::array<Tensor*, 5> tensors() {
    return {&conv, &recurrent, &snapshot_conv, &snapshot_recurrent, &scales};
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
    const SnapshotLayer layer{.conv = snapshot_conv.view(),
                              .recurrent = snapshot_recurrent.view(),
                              .scales = scales.view()};
    std::vector<float> to(kRows * kDk);
    decode_snapshot_rows(snapshot_rows(layer, slot, 0), kRows, kDk, to.data());
    return to;
  }

  Tensor conv, recurrent, snapshot_conv, snapshot_recurrent, scales;
  std::array<DeviceTensor, 5> device;  // of tensors()
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

// A row with a number that is not finite is NaN: equal as numbers it is not.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

class StateSnapshotTest : public DeviceTest {
 protected:
  static constexpr DType kFormats[] = {DType::kF32, DType::kBf16, DType::kI8};

  Layer layer_of(DType dtype, uint64_t seed) {
    Layer layer(dtype, seed);
    for (size_t i = 0; i < layer.device.size(); ++i) layer.device[i] = upload(*layer.tensors()[i]);
    return layer;
  }

  Status move(StateMove kind, const std::vector<StatePartView>& parts,
              const std::vector<IdCopy>& slots) {
    return move_states(context(),
                       {.move = kind, .parts = mirrored(parts), .slots = mirrored(slots)});
  }

  // Brings what the device did back to the host's tensors.
  void fetch(Layer& layer) {
    for (size_t i = 0; i < layer.device.size(); ++i)
      *layer.tensors()[i] = download(layer.device[i]);
  }
};

HEDDLE_ON_EVERY_DEVICE(StateSnapshotTest);

TEST_P(StateSnapshotTest, SmallestSlotsAreSavedAndRestoredInAllLayersAndFormats) {
  for (const DType dtype : kFormats) {
    SCOPED_TRACE(to_string(dtype));
    Layer layers[] = {layer_of(dtype, 1), layer_of(dtype, 7)};
    std::vector<float> strange = layers[0].matrices(2);  // rows that int8 treats apart
    strange[3] = std::numeric_limits<float>::infinity();
    strange[kDk + 1] = std::numeric_limits<float>::quiet_NaN();
    std::fill_n(strange.begin() + 2 * kDk, kDk, 1e-38f);
    std::ranges::copy(strange, layers[0].recurrent.view().row<float>(3));
    layers[0].device[1] = upload(layers[0].recurrent);
    std::vector<StatePartView> parts;
    for (Layer& layer : layers) layer.add_parts(parts);
    const std::vector<IdCopy> there = {{.from = 2, .to = 3}, {.from = 3, .to = 1}};
    const Status status = move(StateMove::kSave, parts, there);
    ASSERT_TRUE(status.ok()) << status.message();
    for (Layer& layer : layers) {
      fetch(layer);
      for (const IdCopy& copy : there) {
        EXPECT_EQ(layer.snapshot_window(copy.to), layer.window(copy.from));
        EXPECT_TRUE(
            same_bits(layer.snapshot_matrices(copy.to), rounded(layer.matrices(copy.from), dtype)));
      }
      for (const int64_t other : {0, 2}) {
        EXPECT_THAT(layer.snapshot_window(other), Each(0.0f));
        EXPECT_THAT(layer.snapshot_matrices(other), Each(0.0f));
      }
    }
    const std::vector<float> before[] = {layers[0].matrices(3), layers[1].matrices(3)};
    const std::vector<IdCopy> back = {{.from = 3, .to = 4}, {.from = 1, .to = 1}};
    ASSERT_TRUE(move(StateMove::kRestore, parts, back).ok());
    for (size_t i = 0; i < 2; ++i) {
      fetch(layers[i]);
      EXPECT_EQ(layers[i].window(4), layers[i].window(2));
      EXPECT_EQ(layers[i].matrices(4), rounded(layers[i].matrices(2), dtype));
      EXPECT_TRUE(same_bits(layers[i].matrices(1), rounded(before[i], dtype)));
      EXPECT_TRUE(same_bits(layers[i].matrices(3), before[i])) << "another slot";
    }
  }
}

TEST_P(StateSnapshotTest, ZeroesAndCopiesWorkingSlotsInTheOrderOfTheList) {
  Layer layers[] = {layer_of(DType::kF32, 1), layer_of(DType::kF32, 7)};
  std::vector<StatePartView> parts;
  for (Layer& layer : layers) layer.add_parts(parts);
  ASSERT_TRUE(move(StateMove::kZero, parts, {{.to = 1}, {.to = 4}}).ok());
  ASSERT_TRUE(move(StateMove::kCopy, parts, {{.from = 2, .to = 4}, {.from = 4, .to = 0}}).ok());
  for (Layer& layer : layers) {
    const std::vector<float> kept_matrices = layer.matrices(2), kept_window = layer.window(2);
    const std::vector<float> other = layer.matrices(3);
    fetch(layer);
    EXPECT_THAT(layer.matrices(1), Each(0.0f));
    EXPECT_THAT(layer.window(1), Each(0.0f));
    for (const int64_t slot : {0, 2, 4}) {
      EXPECT_EQ(layer.matrices(slot), kept_matrices);
      EXPECT_EQ(layer.window(slot), kept_window);
    }
    EXPECT_EQ(layer.matrices(3), other);
  }
}

// Slots of 130 numbers lie on 16 bytes at even ids alone: lanes divide their numbers in two ways.
TEST_P(StateSnapshotTest, CopiesSlotsInTheOrderOfTheListWhereverTheyLie) {
  Tensor states(Shape{6, 130}, DType::kF32);
  fill_random(states, 3);
  DeviceTensor device = upload(states);
  const std::vector<StatePartView> parts = {state_part(device.view())};
  std::vector<IdCopy> copies;
  std::vector<int32_t> holds = {0, 1, 2, 3, 4, 5};  // by slot: whose numbers
  for (const auto& [from, to] : std::vector<std::pair<int32_t, int32_t>>{
           {2, 4}, {4, 3}, {3, 1}, {2, 0}, {5, 2}, {1, 5}, {5, 4}}) {
    copies.push_back({.from = from, .to = to});
    holds[static_cast<size_t>(to)] = holds[static_cast<size_t>(from)];
  }
  ASSERT_TRUE(move(StateMove::kCopy, parts, copies).ok());
  const Tensor after = download(device);
  for (size_t slot = 0; slot < holds.size(); ++slot) {
    for (size_t i = 0; i < 130; ++i) {
      ASSERT_EQ(after.span<float>()[slot * 130 + i],
                states.span<float>()[static_cast<size_t>(holds[slot]) * 130 + i])
          << "slot " << slot;
    }
  }
}

// Parts of several shapes, one without rows, one with rows wider than a warp takes at once.
TEST_P(StateSnapshotTest, PartsOfOneListDifferInShapeAndFormat) {
  const std::vector<Shape> shapes = {{1, 7}, {3, 300}, {2, 3, 130}, {0, 12}, {5}};
  const DType formats[] = {DType::kI8, DType::kBf16, DType::kI8, DType::kF32, DType::kF32};
  const auto with_slots = [](int64_t slots, const Shape& shape) {
    std::vector<int64_t> dims = {slots};
    dims.insert(dims.end(), shape.dims().begin(), shape.dims().end());
    return Shape(dims);
  };
  std::vector<Tensor> working, saved, scales;
  std::vector<DeviceTensor> device;
  std::vector<StatePartView> parts;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::span<const int64_t> dims = shapes[i].dims();
    working.emplace_back(with_slots(3, shapes[i]), DType::kF32);
    saved.emplace_back(with_slots(2, shapes[i]), formats[i]);
    scales.emplace_back(with_slots(2, Shape(dims.first(dims.size() - 1))), DType::kF32);
    fill_random(working.back(), 20 + i);
    for (const Tensor* tensor : {&working.back(), &saved.back(), &scales.back()}) {
      device.push_back(upload(*tensor));
    }
  }
  for (size_t i = 0; i < shapes.size(); ++i) {
    parts.push_back(
        state_part(device[3 * i].view(), device[3 * i + 1].view(),
                   formats[i] == DType::kI8 ? device[3 * i + 2].view() : MutableTensorView()));
  }
  ASSERT_TRUE(move(StateMove::kSave, parts, {{.from = 1, .to = 1}}).ok());
  ASSERT_TRUE(move(StateMove::kRestore, parts, {{.from = 1, .to = 2}}).ok());
  ASSERT_TRUE(move(StateMove::kCopy, parts, {{.from = 2, .to = 0}}).ok());
  ASSERT_TRUE(move(StateMove::kZero, parts, {{.to = 1}}).ok());
  for (size_t i = 0; i < shapes.size(); ++i) {
    SCOPED_TRACE(fmt::format("part {}", i));
    const StatePartView& part = parts[i];
    const auto count = static_cast<size_t>(part.rows * part.width);
    const float* from = working[i].view().row<float>(1);
    std::vector<std::byte> data(count * sizeof(float));
    std::vector<float> row_scales(static_cast<size_t>(part.rows)), want(count);
    const SnapshotRows rows{.dtype = formats[i], .data = data.data(), .scales = row_scales.data()};
    encode_snapshot_rows(from, part.rows, part.width, rows);
    decode_snapshot_rows(rows, part.rows, part.width, want.data());
    Tensor got = download(device[3 * i]);
    const auto slot = [&](int64_t index) {
      return std::vector<float>(got.view().row<float>(index), got.view().row<float>(index) + count);
    };
    EXPECT_EQ(slot(2), want);
    EXPECT_EQ(slot(0), want);
    EXPECT_THAT(slot(1), Each(0.0f));
  }
}

TEST_P(StateSnapshotTest, NamesThePartOrSlotThatDoesNotFit) {
  Layer layer = layer_of(DType::kI8, 1);
  std::vector<StatePartView> parts;
  layer.add_parts(parts);
  const auto message = [&](int32_t from, int32_t to, StateMove kind = StateMove::kSave) {
    return move(kind, parts, {{.from = from, .to = to}}).to_string();
  };
  EXPECT_THAT(message(5, 1), HasSubstr("save_states: from slot 5 of 5"));
  EXPECT_THAT(message(1, 4), HasSubstr("save_states: to slot 4 of 4"));
  EXPECT_THAT(message(4, 1, StateMove::kRestore), HasSubstr("restore_states: from slot 4 of 4"));
  EXPECT_THAT(message(1, 5, StateMove::kRestore), HasSubstr("restore_states: to slot 5 of 5"));
  EXPECT_THAT(message(1, -1, StateMove::kCopy), HasSubstr("copy_states: to slot -1 of 5"));
  EXPECT_THAT(message(7, 5, StateMove::kZero), HasSubstr("zero_states: to slot 5 of 5"));
  const StatePartView matrices = parts[1];
  parts[1].scales = {};
  EXPECT_THAT(message(1, 1), HasSubstr("part 1 has scales"));
  parts[1] = matrices;
  parts[1].snapshots = layer.device[2].view();
  EXPECT_THAT(message(1, 1), HasSubstr("part 1 has snapshots [4, 3, 276] of float32"));
  parts[1].snapshots = {};
  EXPECT_THAT(message(1, 1), HasSubstr("part 1 has no snapshots"));
  parts[1].working = layer.device[3].view();
  EXPECT_THAT(message(1, 1), HasSubstr("part 1 has working states"));
  parts.clear();
  EXPECT_THAT(message(1, 1), HasSubstr("there are no parts"));
}

// A snapshot that a step writes equals its working slot saved afterwards.
TEST_P(StateSnapshotTest, SmallestStepsRoundTheirSnapshotsOnceFromTheirAccumulators) {
  constexpr int64_t kTokens = 100, kKeyHeads = 2;
  constexpr int64_t kQkv = 2 * kKeyHeads * kDk + kNv * kDv;
  Tensor qkv({kTokens, kQkv}, DType::kF32), a({kTokens, kNv}, DType::kF32);
  Tensor decay({kNv}, DType::kF32), bias({kNv}, DType::kF32);
  Tensor x({kTokens, kChannels}, DType::kF32);
  Tensor weight({kChannels, kWindow + 1}, DType::kF32);
  fill_random(qkv, 11);
  fill_random(a, 12);
  fill_random(x, 13);
  fill_random(weight, 14);
  std::ranges::fill(decay.span<float>(), -0.3f);
  const DeviceTensor device_decay = upload(decay), device_bias = upload(bias);
  const DeviceTensor device_weight = upload(weight);
  const auto run = [&](bool exact, Layer& layer, int64_t count,
                       std::vector<StateSnapshot> snapshots) {
    const std::vector<int32_t> query_start = {0, static_cast<int32_t>(count)};
    const std::vector<int32_t> context_lens = {0}, slots = {1};
    ForwardContext forward;
    forward.query_start = query_start;
    forward.context_lens = context_lens;
    forward.state_slots = slots;
    forward.snapshots = snapshots;
    upload_batch(forward);
    const device::Buffer scratch = workspace(gated_delta_rule_workspace_bytes(
        context(exact),
        {.max_tokens = count, .num_value_heads = kNv, .key_dim = kDk, .value_dim = kDv}));
    const auto rows = [&](const Tensor& tensor) {
      return upload(TensorView(tensor.view().data, DType::kF32, Shape{count, tensor.shape()[1]}));
    };
    const DeviceTensor device_qkv = rows(qkv), device_a = rows(a), device_x = rows(x);
    DeviceTensor device_y = poisoned({count, kNv * kDv}, DType::kF32);
    DeviceTensor device_conv_y = poisoned({count, kChannels}, DType::kF32);
    Status status = gated_delta_rule(context(exact), {.qkv = device_qkv.view(),
                                                      .a = device_a.view(),
                                                      .b = device_a.view(),
                                                      .neg_exp_a_log = device_decay.view(),
                                                      .dt_bias = device_bias.view(),
                                                      .y = device_y.view(),
                                                      .num_key_heads = kKeyHeads,
                                                      .key_dim = kDk,
                                                      .value_dim = kDv,
                                                      .state = layer.working(),
                                                      .snapshots = layer.snapshots(),
                                                      .forward = &forward,
                                                      .workspace = scratch.bytes()});
    ASSERT_TRUE(status.ok()) << status.to_string();
    status = causal_conv1d(context(exact), {.x = device_x.view(),
                                            .weight = device_weight.view(),
                                            .y = device_conv_y.view(),
                                            .state = layer.working(),
                                            .snapshots = layer.snapshots(),
                                            .forward = &forward});
    ASSERT_TRUE(status.ok()) << status.to_string();
    fetch(layer);
  };
  for (const DType dtype : kFormats) {
    for (const bool exact : {false, true}) {
      SCOPED_TRACE(fmt::format("{} exact {}", to_string(dtype), exact));
      Layer layer = layer_of(dtype, 1), shorter = layer_of(dtype, 1);
      const std::vector<float> other = layer.matrices(2);
      run(exact, layer, kTokens,
          {{.num_tokens = 64, .slot = 2}, {.num_tokens = kTokens, .slot = 3}});
      EXPECT_EQ(layer.snapshot_matrices(3), rounded(layer.matrices(1), dtype));
      EXPECT_EQ(layer.snapshot_window(3), layer.window(1));
      EXPECT_EQ(layer.matrices(2), other) << "a snapshot slot is no working slot";
      run(exact, shorter, 64, {});
      EXPECT_EQ(layer.snapshot_matrices(2), rounded(shorter.matrices(1), dtype));
      EXPECT_EQ(layer.snapshot_window(2), shorter.window(1));
      EXPECT_THAT(layer.snapshot_matrices(1), Each(0.0f));
    }
  }
}

}  // namespace
}  // namespace heddle::ops
