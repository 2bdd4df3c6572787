// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/decayed_linear_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/linear_attention/decayed_linear_attention_reference.h"
#include "ops/tree_fixture.h"
#include "support/tensors.h"

namespace heddle::ops {

namespace {

constexpr float kCanary = 768.0f;  // in every dtype
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

struct Geometry {
  int64_t Nk = 2, Nv = 4, Dk = 16, Dv = 24;
  bool constant = false;  // a constant decay and no skip
  float dt_low = 0, dt_high = std::numeric_limits<float>::infinity();
  int64_t padding = 8;  // columns between two rows of vkq: 8 keep rows aligned for vector loads

  [[nodiscard]] int64_t width() const { return Nv * Dv + 2 * Nk * Dk; }
};

struct Part {
  int64_t slot = 1;
  int64_t context_len = 0;
  int64_t first = 0;  // row of the layer's inputs
  int64_t num_rows = 0;
  testing::Parents parents = {};  // the last rows are nodes of a tree
};

class DecayedLinearAttentionTest : public DeviceTest {
 public:
  using DeviceTest::context_on;
  using DeviceTest::download;
  using DeviceTest::rounding_of;
  using DeviceTest::upload;
  using DeviceTest::upload_batch;
  using DeviceTest::workspace;
};

HEDDLE_ON_EVERY_DEVICE(DecayedLinearAttentionTest);

// A layer's inputs for some rows, its weights and a pool of poisoned states.
class Layer {
 public:
  static constexpr int64_t kSlots = 9;

  Layer(DecayedLinearAttentionTest& test, const Geometry& geometry, int64_t num_inputs,
        DType dtype = DType::kF32)
      : test_(test),
        dtype_(dtype),
        geometry_(geometry),
        vkq_(testing::random_tensor({num_inputs, geometry.width()}, DType::kF32, 1)),
        a_(testing::random_tensor({num_inputs, geometry.Nv}, DType::kF32, 2)),
        decay_(testing::random_tensor({geometry.Nv}, DType::kF32, 3)),
        dt_bias_(testing::random_tensor({geometry.Nv}, DType::kF32, 4)),
        skip_(testing::random_tensor({geometry.Nv}, DType::kF32, 5)),
        states_({kSlots, geometry.Nv, geometry.Dv, geometry.Dk}, DType::kF32),
        y_(static_cast<size_t>(num_inputs * geometry.Nv * geometry.Dv), kPoison) {
    for (float& value : decay_.span<float>()) value = -std::exp(value - 1.0f);
    std::ranges::fill(states_.span<float>(), kPoison);
    vkq_ = testing::converted(testing::converted(vkq_.view(), dtype).view(), DType::kF32);
    device_states_ = test.upload(states_);
    for (const Tensor* weight : {&decay_, &dt_bias_, &skip_}) {
      weights_.push_back(test.upload(*weight));
    }
  }

  void step(bool exact, const std::vector<Part>& parts,
            const std::vector<StateSnapshot>& snapshots = {}, int num_threads = 1) {
    const Geometry& g = geometry_;
    std::vector<int32_t> query_start{0}, context_lens, slots;
    for (const Part& part : parts) {
      query_start.push_back(query_start.back() + static_cast<int32_t>(part.num_rows));
      context_lens.push_back(static_cast<int32_t>(part.context_len));
      slots.push_back(static_cast<int32_t>(part.slot));
    }
    const int64_t T = query_start.back(), width = g.Nv * g.Dv;
    const int64_t stride = g.width() + g.padding;
    Tensor vkq({T, stride}, DType::kF32), a({T, g.Nv + 1}, DType::kF32);
    Tensor y({T, width + 2}, DType::kF32);
    std::ranges::fill(y.span<float>(), kCanary);
    for (size_t p = 0; p < parts.size(); ++p) {
      for (int64_t t = 0; t < parts[p].num_rows; ++t) {
        const int64_t from = parts[p].first + t, to = query_start[p] + t;
        std::copy_n(vkq_.view().row<float>(from), g.width(), vkq.view().row<float>(to));
        std::copy_n(a_.view().row<float>(from), g.Nv, a.view().row<float>(to));
      }
    }
    ForwardContext forward;
    forward.query_start = query_start;
    forward.context_lens = context_lens;
    forward.state_slots = slots;
    forward.snapshots = snapshots;
    testing::StepTrees trees;
    for (const Part& part : parts) trees.add(part.context_len, part.num_rows, part.parents);
    trees.set(forward);
    test_.upload_batch(forward);
    Context& context = test_.context_on(num_threads, exact);
    const device::Buffer workspace = test_.workspace(decayed_linear_attention_workspace_bytes(
        context, {.max_tokens = T, .key_dim = g.Dk, .value_dim = g.Dv}));
    const DeviceTensor device_vkq = test_.upload(testing::converted(vkq.view(), dtype_));
    const DeviceTensor device_a = test_.upload(a);
    DeviceTensor device_y = test_.upload(testing::converted(y.view(), dtype_));
    DecayedLinearAttentionArgs args{.vkq = {device_vkq.view().data, dtype_, {T, g.width()}, stride},
                                    .decay = weights_[0].view(),
                                    .y = {device_y.view().data, dtype_, {T, width}, width + 2},
                                    .num_key_heads = g.Nk,
                                    .key_dim = g.Dk,
                                    .value_dim = g.Dv,
                                    .state = {.conv = {}, .recurrent = device_states_.view()},
                                    .forward = &forward,
                                    .workspace = workspace.bytes()};
    if (!g.constant) {
      args.a = {device_a.view().data, DType::kF32, {T, g.Nv}, g.Nv + 1};
      args.dt_bias = weights_[1].view();
      args.skip = weights_[2].view();
      args.dt_low = g.dt_low;
      args.dt_high = g.dt_high;
    }
    const Status status = decayed_linear_attention(context, args);
    ASSERT_TRUE(status.ok()) << status.to_string();
    y = testing::converted(test_.download(device_y).view(), DType::kF32);
    states_ = test_.download(device_states_);
    for (size_t p = 0; p < parts.size(); ++p) {
      for (int64_t t = 0; t < parts[p].num_rows; ++t) {
        const float* row = y.view().row<float>(query_start[p] + t);
        std::copy_n(row, width, y_.begin() + (parts[p].first + t) * width);
        EXPECT_EQ(row[width], kCanary);
        EXPECT_EQ(row[width + 1], kCanary);
      }
    }
  }

  [[nodiscard]] std::vector<float> outputs(int64_t first, int64_t count) const {
    const int64_t width = geometry_.Nv * geometry_.Dv;
    return {y_.begin() + first * width, y_.begin() + (first + count) * width};
  }

  [[nodiscard]] std::vector<float> state(int64_t slot) {
    const float* from = states_.view().row<float>(slot);
    return {from, from + geometry_.Nv * geometry_.Dv * geometry_.Dk};
  }

  void expect_untouched(int64_t slot) {
    EXPECT_TRUE(std::ranges::all_of(state(slot), [](float x) { return std::isnan(x); })) << slot;
  }

  // Relative errors of outputs and state after the inputs [first, first + count) from a zero state:
  // fp32 sums of up to a few hundred terms; a GPU multiplies chunks of bf16 in 16 bits.
  void expect_near_reference(int64_t first, int64_t count, int64_t slot) {
    const double tolerance = dtype_ == DType::kBf16 ? 1e-5 : 2e-6;
    const Geometry& g = geometry_;
    double error = 0, norm = 0, state_error = 0, state_norm = 0;
    const std::vector<float> got_y = outputs(first, count), got_state = state(slot);
    for (int64_t h = 0; h < g.Nv; ++h) {
      const auto at = static_cast<size_t>(h);
      std::vector<double> dt(static_cast<size_t>(count), 1.0);
      for (int64_t t = 0; t < count && !g.constant; ++t) {
        const double x = static_cast<double>(a_.view().row<float>(first + t)[h]) +
                         static_cast<double>(dt_bias_.span<float>()[at]);
        dt[static_cast<size_t>(t)] =
            time_step_reference(x, static_cast<double>(g.dt_low), static_cast<double>(g.dt_high));
      }
      const float* row = vkq_.view().row<float>(first);
      const float* key = row + g.Nv * g.Dv + h / (g.Nv / g.Nk) * g.Dk;
      std::vector<double> true_state(static_cast<size_t>(g.Dv * g.Dk));
      const std::vector<double> true_y =
          decayed_head_reference({.v = row + h * g.Dv,
                                  .k = key,
                                  .q = key + g.Nk * g.Dk,
                                  .stride = g.width(),
                                  .decay = decay_.span<float>()[at],
                                  .skip = g.constant ? 0.0f : skip_.span<float>()[at],
                                  .num_tokens = count,
                                  .key_dim = g.Dk,
                                  .value_dim = g.Dv},
                                 dt, true_state);
      for (size_t i = 0; i < true_y.size(); ++i) {
        const int64_t t = static_cast<int64_t>(i) / g.Dv, v = static_cast<int64_t>(i) % g.Dv;
        const auto value =
            static_cast<double>(got_y[static_cast<size_t>((t * g.Nv + h) * g.Dv + v)]);
        error += (value - true_y[i]) * (value - true_y[i]);
        norm += true_y[i] * true_y[i];
      }
      for (size_t i = 0; i < true_state.size(); ++i) {
        const auto value = static_cast<double>(got_state[at * true_state.size() + i]);
        state_error += (value - true_state[i]) * (value - true_state[i]);
        state_norm += true_state[i] * true_state[i];
      }
    }
    EXPECT_LE(std::sqrt(error),
              (tolerance + DecayedLinearAttentionTest::rounding_of(dtype_)) * std::sqrt(norm));
    EXPECT_LE(std::sqrt(state_error), tolerance * std::sqrt(state_norm));
  }

 private:
  DecayedLinearAttentionTest& test_;
  DType dtype_;
  Geometry geometry_;
  Tensor vkq_, a_, decay_, dt_bias_, skip_, states_;
  DeviceTensor device_states_;
  std::vector<DeviceTensor> weights_;
  std::vector<float> y_;
};

TEST_P(DecayedLinearAttentionTest, MatchesTheReferenceInBothModes) {
  const Geometry geometries[] = {{.Nk = 1, .Nv = 1, .Dk = 7, .Dv = 7},
                                 {.Nk = 2, .Nv = 6, .Dk = 96, .Dv = 32, .dt_low = 0.5f},
                                 {.Nk = 1, .Nv = 2, .Dk = 128, .Dv = 64, .dt_high = 0.75f},
                                 {.Nk = 1, .Nv = 2, .Dk = 200, .Dv = 33},
                                 {.Nk = 3, .Nv = 3, .Dk = 20, .Dv = 70, .constant = true},
                                 {.Nk = 1, .Nv = 1, .Dk = 300, .Dv = 9, .constant = true}};
  for (const Geometry& geometry : geometries) {
    for (const DType dtype : activation_dtypes()) {
      for (const bool exact : {false, true}) {
        for (const int64_t n : {1, 15, 16, 70}) {
          for (const int64_t padding : {8, 3}) {
            SCOPED_TRACE(fmt::format("{} Dk {} Dv {} exact {} n {} padding {}", to_string(dtype),
                                     geometry.Dk, geometry.Dv, exact, n, padding));
            Geometry padded = geometry;
            padded.padding = padding;
            Layer layer(*this, padded, n, dtype);
            layer.step(exact, {{.slot = 3, .num_rows = n}}, {}, 3);
            layer.expect_near_reference(0, n, 3);
            for (const int64_t slot : {0, 1, 2, 4}) layer.expect_untouched(slot);
          }
        }
      }
    }
  }
}

// Prompts in chunks, with what comes before and behind them, beside sequences that have a token,
// too few of them, or a tree.
TEST_P(DecayedLinearAttentionTest, PromptsOfSeveralStepsMatchTheReference) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU's chunks are tested with fp32";
  const Geometry geometries[] = {{.Nk = 1, .Nv = 2, .Dk = 128, .Dv = 64},
                                 {.Nk = 2, .Nv = 6, .Dk = 64, .Dv = 32, .dt_high = 0.75f},
                                 {.Nk = 3, .Nv = 3, .Dk = 128, .Dv = 128, .constant = true},
                                 {.Nk = 1, .Nv = 2, .Dk = 64, .Dv = 64, .padding = 3}};
  for (const Geometry& geometry : geometries) {
    for (const int64_t n : {24, 63, 64, 65, 129, 200}) {
      SCOPED_TRACE(fmt::format("Dk {} Dv {} n {} padding {}", geometry.Dk, geometry.Dv, n,
                               geometry.padding));
      Layer layer(*this, geometry, 2 * n + 100, DType::kBf16);
      const int64_t other = 2 * n;  // its first row
      layer.step(false, {{.slot = 3, .num_rows = n}, {.slot = 1, .first = other, .num_rows = 50}});
      layer.expect_near_reference(0, n, 3);
      layer.expect_near_reference(other, 50, 1);
      layer.step(false, {{.slot = 1, .context_len = 50, .first = other + 50, .num_rows = 1},
                         {.slot = 3, .context_len = n, .first = n, .num_rows = n - 1},
                         {.slot = 5, .first = other + 60, .num_rows = 23},
                         {.slot = 6,
                          .first = other + 60,
                          .num_rows = 30,
                          .parents = testing::random_parents(2, 1)}});
      layer.expect_near_reference(0, 2 * n - 1, 3);
      layer.expect_near_reference(other, 51, 1);
      layer.expect_near_reference(other + 60, 28, 6);
      layer.step(false, {{.slot = 3, .context_len = 2 * n - 1, .first = 2 * n - 1, .num_rows = 1}});
      layer.expect_near_reference(0, 2 * n, 3);
      for (const int64_t slot : {0, 2, 4}) layer.expect_untouched(slot);
    }
  }
}

// At positions where chunks end anyway, by steps of as many rows as have chunks.
TEST_P(DecayedLinearAttentionTest, PromptsHaveTheSameBitsWholeAndCutBetweenChunks) {
  if (!on_cuda()) GTEST_SKIP() << "chunks of the CPU begin with the step";
  const Geometry geometry{.Nk = 1, .Nv = 2, .Dk = 128, .Dv = 64};
  Layer whole(*this, geometry, 300, DType::kBf16), pieces(*this, geometry, 300, DType::kBf16);
  whole.step(false, {{.slot = 1, .num_rows = 300}});
  for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 64}, {64, 128}, {192, 108}}) {
    pieces.step(false, {{.slot = 1, .context_len = first, .first = first, .num_rows = count}});
  }
  EXPECT_EQ(whole.outputs(0, 300), pieces.outputs(0, 300));
  EXPECT_EQ(whole.state(1), pieces.state(1));
}

TEST_P(DecayedLinearAttentionTest, SnapshotsCutTheChunksOfPrompts) {
  if (!on_cuda()) GTEST_SKIP() << "the CPU's chunks are tested with fp32";
  const std::vector<StateSnapshot> snapshots{{.sequence = 0, .num_tokens = 1, .slot = 3},
                                             {.sequence = 0, .num_tokens = 64, .slot = 4},
                                             {.sequence = 0, .num_tokens = 77, .slot = 5},
                                             {.sequence = 0, .num_tokens = 200, .slot = 6},
                                             {.sequence = 1, .num_tokens = 30, .slot = 7}};
  for (const int64_t Dk : {64, 128}) {
    Layer layer(*this, {.Nk = 1, .Nv = 2, .Dk = Dk, .Dv = 64}, 240, DType::kBf16);
    layer.step(false, {{.slot = 1, .num_rows = 200}, {.slot = 2, .first = 200, .num_rows = 40}},
               snapshots);
    layer.expect_near_reference(0, 200, 1);
    EXPECT_EQ(layer.state(6), layer.state(1)) << "a snapshot at the end is the working state";
    for (const auto& [tokens, slot] : {std::pair<int64_t, int64_t>{1, 3}, {64, 4}, {77, 5}}) {
      layer.expect_near_reference(0, tokens, slot);
    }
    layer.expect_near_reference(200, 30, 7);
    layer.expect_near_reference(200, 40, 2);
    layer.expect_untouched(0);
    layer.expect_untouched(8);
  }
}

// Three tokens by hand: one head, one value channel, two key channels, a decay of -0.5 and a skip
// of 0.25.
TEST_P(DecayedLinearAttentionTest, GivesTheNumbersOfAnExampleByHand) {
  Tensor vkq({3, 5}, DType::kF32), a({3, 1}, DType::kF32);
  constexpr float kRows[3][5] = {{1, 1, 0, 1, 1}, {2, 0.5f, 1, 2, 0}, {-1, 1, -1, 0, 1}};
  constexpr float kSteps[3] = {0, 1, -1};
  for (int64_t t = 0; t < 3; ++t) {
    std::copy_n(kRows[t], 5, vkq.view().row<float>(t));
    a.view().row<float>(t)[0] = kSteps[t];
  }
  Tensor numbers({3}, DType::kF32);
  numbers.span<float>()[0] = -0.5f, numbers.span<float>()[1] = 0, numbers.span<float>()[2] = 0.25f;
  const DeviceTensor device_vkq = upload(vkq), device_a = upload(a), weights = upload(numbers);
  DeviceTensor states = poisoned({2, 1, 1, 2}, DType::kF32), y = poisoned({3, 1}, DType::kF32);
  const std::vector<int32_t> query_start{0, 3}, context_lens{0}, slots{1};
  ForwardContext forward;
  forward.query_start = query_start;
  forward.context_lens = context_lens;
  forward.state_slots = slots;
  upload_batch(forward);
  const device::Buffer scratch = workspace(decayed_linear_attention_workspace_bytes(
      context(), {.max_tokens = 3, .key_dim = 2, .value_dim = 1}));
  const auto* at = weights.view().as<float>();
  DecayedLinearAttentionArgs args{.vkq = device_vkq.view(),
                                  .a = device_a.view(),
                                  .decay = {at, DType::kF32, {1}},
                                  .dt_bias = {at + 1, DType::kF32, {1}},
                                  .skip = {at + 2, DType::kF32, {1}},
                                  .y = y.view(),
                                  .num_key_heads = 1,
                                  .key_dim = 2,
                                  .value_dim = 1,
                                  .state = {.conv = {}, .recurrent = states.view()},
                                  .forward = &forward,
                                  .workspace = scratch.bytes()};
  const Status status = decayed_linear_attention(context(), args);
  ASSERT_TRUE(status.ok()) << status.to_string();
  const Tensor got = download(y), after = download(states);
  EXPECT_NEAR(got.span<float>()[0], 0.9431472f, 1e-6f);
  EXPECT_NEAR(got.span<float>()[1], 3.8454496f, 4e-6f);
  EXPECT_NEAR(got.span<float>()[2], 2.3089907f, 3e-6f);
  EXPECT_NEAR(after.view().row<float>(1)[0], 1.1169508f, 2e-6f);
  EXPECT_NEAR(after.view().row<float>(1)[1], 2.5589907f, 3e-6f);

  const auto message = [&](const DecayedLinearAttentionArgs& wrong) {
    return decayed_linear_attention(context(), wrong).to_string();
  };
  DecayedLinearAttentionArgs wrong = args;
  wrong.num_key_heads = 2;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("2 * Nk * Dk"));
  wrong = args;
  wrong.dt_low = 2, wrong.dt_high = 1;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("dt_high"));
  wrong = args;
  wrong.dt_bias = weights.view();
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("dt_bias has Nv = 3"));
}

TEST_P(DecayedLinearAttentionTest, ExactModeGivesTheSameBitsForAnyChunkingBatchAndThreads) {
  const std::vector<int64_t> lengths{90, 33, 1, 64}, starts{0, 90, 123, 124};
  const Geometry geometry{.Nk = 2, .Nv = 4, .Dk = 40, .Dv = 80, .dt_low = 0.1f};
  Layer whole(*this, geometry, 188);
  for (size_t b = 0; b < lengths.size(); ++b) {
    whole.step(true,
               {{.slot = static_cast<int64_t>(b) + 1, .first = starts[b], .num_rows = lengths[b]}});
  }
  for (const uint64_t seed : {1u, 2u, 3u}) {
    Layer pieces(*this, geometry, 188);
    std::mt19937_64 random(seed);
    std::vector<int64_t> done(lengths.size());
    while (done != lengths) {
      std::vector<Part> parts;
      for (size_t b = 0; b < lengths.size(); ++b) {
        if (done[b] == lengths[b] || random() % 3 == 0) continue;
        const int64_t rows = std::min<int64_t>(
            lengths[b] - done[b], random() % 2 == 0 ? 1 : 1 + static_cast<int64_t>(random() % 40));
        parts.push_back({.slot = static_cast<int64_t>(b) + 1,
                         .context_len = done[b],
                         .first = starts[b] + done[b],
                         .num_rows = rows});
        done[b] += rows;
      }
      if (!parts.empty()) pieces.step(true, parts, {}, 1 + static_cast<int>(random() % 3));
    }
    EXPECT_EQ(whole.outputs(0, 188), pieces.outputs(0, 188));
    for (int64_t slot = 1; slot <= 4; ++slot) EXPECT_EQ(whole.state(slot), pieces.state(slot));
  }
}

TEST_P(DecayedLinearAttentionTest, SnapshotsHoldTheStateAfterExactlyTheirTokens) {
  for (const bool constant : {false, true}) {
    const Geometry geometry{.Nk = 1, .Nv = 2, .Dk = 32, .Dv = 70, .constant = constant};
    const std::vector<StateSnapshot> snapshots{{.sequence = 0, .num_tokens = 1, .slot = 3},
                                               {.sequence = 0, .num_tokens = 64, .slot = 4},
                                               {.sequence = 0, .num_tokens = 77, .slot = 5},
                                               {.sequence = 0, .num_tokens = 100, .slot = 6},
                                               {.sequence = 1, .num_tokens = 2, .slot = 7}};
    for (const bool exact : {false, true}) {
      SCOPED_TRACE(fmt::format("constant {} exact {}", constant, exact));
      Layer layer(*this, geometry, 110);
      layer.step(exact, {{.slot = 1, .num_rows = 100}, {.slot = 2, .first = 100, .num_rows = 3}},
                 snapshots, 2);
      layer.expect_near_reference(0, 100, 1);
      EXPECT_EQ(layer.state(6), layer.state(1)) << "a snapshot at the end is the working state";
      for (const auto& [tokens, slot] : {std::pair<int64_t, int64_t>{1, 3}, {64, 4}, {77, 5}}) {
        layer.expect_near_reference(0, tokens, slot);
        if (!exact) continue;
        Layer shorter(*this, geometry, 110);  // the same tokens and nothing after them
        shorter.step(exact, {{.slot = 1, .num_rows = tokens}});
        EXPECT_EQ(layer.state(slot), shorter.state(1)) << tokens << " tokens";
      }
      layer.expect_near_reference(100, 2, 7);
      layer.expect_untouched(0);
      layer.expect_untouched(8);
    }
  }
}

// A node starts from its parent's state and leaves its own in its slot.
TEST_P(DecayedLinearAttentionTest, ANodeOfATreeHasTheBitsOfItsPathAlone) {
  constexpr int64_t kNodes = 5;
  for (const int64_t num_chain : {1, 3}) {
    for (const int64_t context : {0, 7}) {
      SCOPED_TRACE(fmt::format("context {} chain {}", context, num_chain));
      const int64_t first = context + num_chain;
      const testing::Parents parents =
          testing::random_parents(kNodes, static_cast<uint64_t>(context + num_chain));
      const Geometry geometry{.Nk = 2, .Nv = 4, .Dk = 32, .Dv = 40};
      Layer tree(*this, geometry, 40), alone(*this, geometry, 40);
      if (context > 0) tree.step(true, {{.slot = 1, .num_rows = context}});
      tree.step(true,
                {{.slot = 8, .first = 20, .num_rows = 20},
                 {.slot = 1,
                  .context_len = context,
                  .first = context,
                  .num_rows = num_chain + kNodes,
                  .parents = parents}},
                {}, 2);
      tree.expect_near_reference(20, 20, 8);
      tree.expect_untouched(7);
      for (int32_t node = 0; node < kNodes; ++node) {
        alone.step(true, {{.slot = 2, .num_rows = first}});
        EXPECT_EQ(tree.state(1), alone.state(2)) << "the state before the tree";
        int64_t position = first;
        for (const int32_t passed : testing::path_to(parents, node)) {
          alone.step(
              true, {{.slot = 2, .context_len = position, .first = first + passed, .num_rows = 1}});
          ++position;
        }
        EXPECT_EQ(tree.outputs(first + node, 1), alone.outputs(first + node, 1)) << node;
        EXPECT_EQ(tree.state(2 + node), alone.state(2)) << node;
      }
    }
  }
}

}  // namespace

}  // namespace heddle::ops
