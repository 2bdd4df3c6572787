// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/gated_delta_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/linear_attention/delta_rule_core.h"
#include "ops/linear_attention/gated_delta_rule_reference.h"
#include "ops/tree_fixture.h"
#include "support/tensors.h"

namespace heddle::ops {

namespace {

constexpr float kCanary = 768.0f;  // in every dtype
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

struct Geometry {
  int64_t Nk = 2, Nv = 4, Dk = 16, Dv = 24;
  bool channels = false;  // a decay per key channel
  float beta_scale = 1;

  // Numbers of a token's a, and of a head's.
  [[nodiscard]] int64_t gates_per_head() const { return channels ? Dk : 1; }

  [[nodiscard]] int64_t a_width() const { return Nv * gates_per_head(); }

  [[nodiscard]] int64_t qkv_width() const { return 2 * Nk * Dk + Nv * Dv; }
};

struct Part {
  int64_t slot = 1;
  int64_t context_len = 0;
  int64_t first = 0;  // row of the layer's inputs
  int64_t num_rows = 0;
  testing::Parents parents = {};  // the last rows are nodes of a tree
};

class GatedDeltaRuleTest : public DeviceTest {
 public:
  using DeviceTest::context_on;
  using DeviceTest::download;
  using DeviceTest::on_cuda;
  using DeviceTest::rounding_of;
  using DeviceTest::upload;
  using DeviceTest::upload_batch;
  using DeviceTest::workspace;

 protected:
  // A decay per head, and one per key channel.
  static constexpr bool kDecays[] = {false, true};
};

HEDDLE_ON_EVERY_DEVICE(GatedDeltaRuleTest);

// A layer's inputs for some rows, its weights and a pool of poisoned states.
class Layer {
 public:
  static constexpr int64_t kSlots = 9;

  Layer(GatedDeltaRuleTest& test, const Geometry& geometry, int64_t num_inputs,
        DType dtype = DType::kF32, uint64_t seed = 1)
      : test_(test),
        dtype_(dtype),
        geometry_(geometry),
        qkv_({num_inputs, geometry.qkv_width()}, DType::kF32),
        a_({num_inputs, geometry.a_width()}, DType::kF32),
        b_({num_inputs, geometry.Nv}, DType::kF32),
        neg_exp_a_log_({geometry.Nv}, DType::kF32),
        dt_bias_({geometry.a_width()}, DType::kF32),
        states_({kSlots, geometry.Nv, geometry.Dv, geometry.Dk}, DType::kF32),
        y_(static_cast<size_t>(num_inputs * geometry.Nv * geometry.Dv), kPoison) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    for (Tensor* tensor : {&qkv_, &a_, &b_, &dt_bias_}) {
      std::ranges::generate(tensor->span<float>(), [&] { return normal(random); });
    }
    std::ranges::generate(neg_exp_a_log_.span<float>(),
                          [&] { return -std::exp(normal(random) - 1.0f); });
    std::ranges::fill(states_.span<float>(), kPoison);
    qkv_ = testing::converted(testing::converted(qkv_.view(), dtype).view(), DType::kF32);
    device_states_ = test.upload(states_);
    device_neg_exp_a_log_ = test.upload(neg_exp_a_log_);
    device_dt_bias_ = test.upload(dt_bias_);
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
    Tensor qkv({T, g.qkv_width() + 3}, DType::kF32), ab({T, g.a_width() + g.Nv + 1}, DType::kF32);
    Tensor y({T, width + 2}, DType::kF32);
    std::ranges::fill(y.span<float>(), kCanary);
    for (size_t p = 0; p < parts.size(); ++p) {
      for (int64_t t = 0; t < parts[p].num_rows; ++t) {
        const int64_t from = parts[p].first + t, to = query_start[p] + t;
        std::copy_n(qkv_.view().row<float>(from), g.qkv_width(), qkv.view().row<float>(to));
        std::copy_n(a_.view().row<float>(from), g.a_width(), ab.view().row<float>(to));
        std::copy_n(b_.view().row<float>(from), g.Nv, ab.view().row<float>(to) + g.a_width());
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
    const device::Buffer workspace =
        test_.workspace(gated_delta_rule_workspace_bytes(context, {.max_tokens = T,
                                                                   .num_value_heads = g.Nv,
                                                                   .key_dim = g.Dk,
                                                                   .value_dim = g.Dv,
                                                                   .channel_decay = g.channels,
                                                                   .dtype = dtype_}));
    const DeviceTensor device_qkv = test_.upload(testing::converted(qkv.view(), dtype_));
    const DeviceTensor device_ab = test_.upload(ab);
    DeviceTensor device_y = test_.upload(testing::converted(y.view(), dtype_));
    const auto* ab_data = device_ab.view().as<float>();
    const Status status = gated_delta_rule(
        context, {.qkv = {device_qkv.view().data, dtype_, {T, g.qkv_width()}, g.qkv_width() + 3},
                  .a = {ab_data, DType::kF32, {T, g.a_width()}, ab.shape()[1]},
                  .b = {ab_data + g.a_width(), DType::kF32, {T, g.Nv}, ab.shape()[1]},
                  .neg_exp_a_log = device_neg_exp_a_log_.view(),
                  .dt_bias = device_dt_bias_.view(),
                  .y = {device_y.view().data, dtype_, {T, width}, width + 2},
                  .num_key_heads = g.Nk,
                  .key_dim = g.Dk,
                  .value_dim = g.Dv,
                  .beta_scale = g.beta_scale,
                  .state = {.conv = {}, .recurrent = device_states_.view()},
                  .forward = &forward,
                  .workspace = workspace.bytes()});
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

  // Relative errors of outputs and state after the inputs [first, first + count) from a zero state.
  void expect_near_reference(int64_t first, int64_t count, int64_t slot, double tolerance = 2e-6) {
    const Geometry& g = geometry_;
    double error = 0, norm = 0, state_error = 0, state_norm = 0;
    const std::vector<float> got_y = outputs(first, count), got_state = state(slot);
    for (int64_t h = 0; h < g.Nv; ++h) {
      std::vector<float> beta;
      for (int64_t t = first; t < first + count; ++t) {
        beta.push_back(
            static_cast<float>(static_cast<double>(g.beta_scale) /
                               (1.0 + std::exp(-static_cast<double>(b_.view().row<float>(t)[h])))));
      }
      // The bias and the head's one gate, if it is one, are spread over the channels.
      std::vector<float> gates;
      const std::vector<float> no_bias(static_cast<size_t>(g.Dk));
      for (int64_t t = first; t < first + count; ++t) {
        for (int64_t c = 0; c < g.Dk; ++c) {
          const int64_t at = h * g.gates_per_head() + c % g.gates_per_head();
          gates.push_back(a_.view().row<float>(t)[at] +
                          dt_bias_.span<float>()[static_cast<size_t>(at)]);
        }
      }
      const float* row = qkv_.view().row<float>(first);
      const int64_t key_head = h / (g.Nv / g.Nk);
      const DeltaRuleHead head{
          .q = row + key_head * g.Dk,
          .k = row + (g.Nk + key_head) * g.Dk,
          .v = row + 2 * g.Nk * g.Dk + h * g.Dv,
          .q_stride = g.qkv_width(),
          .k_stride = g.qkv_width(),
          .v_stride = g.qkv_width(),
          .channel = {.f = gates.data(),
                      .stride = g.Dk,
                      .dt_bias = no_bias.data(),
                      .neg_exp_a_log = neg_exp_a_log_.span<float>()[static_cast<size_t>(h)]},
          .beta = beta.data(),
          .num_tokens = count,
          .key_dim = g.Dk,
          .value_dim = g.Dv};
      std::vector<double> true_state(static_cast<size_t>(g.Dv * g.Dk));
      const std::vector<double> true_y = delta_rule_reference(head, true_state);
      for (size_t i = 0; i < true_y.size(); ++i) {
        const int64_t t = static_cast<int64_t>(i) / g.Dv, v = static_cast<int64_t>(i) % g.Dv;
        const double value =
            static_cast<double>(got_y[static_cast<size_t>((t * g.Nv + h) * g.Dv + v)]);
        error += (value - true_y[i]) * (value - true_y[i]);
        norm += true_y[i] * true_y[i];
      }
      for (size_t i = 0; i < true_state.size(); ++i) {
        const double value =
            static_cast<double>(got_state[static_cast<size_t>(h * g.Dv * g.Dk) + i]);
        state_error += (value - true_state[i]) * (value - true_state[i]);
        state_norm += true_state[i] * true_state[i];
      }
    }
    EXPECT_LE(std::sqrt(error),
              (tolerance + GatedDeltaRuleTest::rounding_of(dtype_)) * std::sqrt(norm));
    EXPECT_LE(std::sqrt(state_error), tolerance * std::sqrt(state_norm));
  }

 private:
  GatedDeltaRuleTest& test_;
  DType dtype_;
  Geometry geometry_;
  Tensor qkv_, a_, b_, neg_exp_a_log_, dt_bias_, states_;
  DeviceTensor device_states_, device_neg_exp_a_log_, device_dt_bias_;
  std::vector<float> y_;
};

TEST_P(GatedDeltaRuleTest, MatchesTheReferenceInBothModes) {
  const Geometry geometries[] = {{.Nk = 1, .Nv = 1, .Dk = 7, .Dv = 7},
                                 {.Nk = 2, .Nv = 4, .Dk = 16, .Dv = 16},
                                 {.Nk = 2, .Nv = 6, .Dk = 96, .Dv = 32},
                                 {.Nk = 1, .Nv = 2, .Dk = 128, .Dv = 128},
                                 {.Nk = 1, .Nv = 2, .Dk = 128, .Dv = 128, .beta_scale = 2},
                                 {.Nk = 2, .Nv = 2, .Dk = 96, .Dv = 192, .beta_scale = 2},
                                 {.Nk = 1, .Nv = 3, .Dk = 17, .Dv = 9, .beta_scale = 2},
                                 {.Nk = 4, .Nv = 4, .Dk = 16, .Dv = 16, .channels = true},
                                 {.Nk = 3, .Nv = 3, .Dk = 20, .Dv = 70, .channels = true},
                                 {.Nk = 2, .Nv = 2, .Dk = 128, .Dv = 128, .channels = true},
                                 {.Nk = 1, .Nv = 2, .Dk = 200, .Dv = 33},
                                 {.Nk = 1, .Nv = 1, .Dk = 300, .Dv = 9, .channels = true}};
  for (const Geometry& geometry : geometries) {
    for (const DType dtype : activation_dtypes()) {
      for (const bool exact : {false, true}) {
        for (const int64_t n : {1, 15, 16, 70}) {
          SCOPED_TRACE(fmt::format("{} Dk {} Dv {} exact {} n {}", to_string(dtype), geometry.Dk,
                                   geometry.Dv, exact, n));
          Layer layer(*this, geometry, n, dtype);
          layer.step(exact, {{.slot = 3, .num_rows = n}}, {}, 3);
          layer.expect_near_reference(0, n, 3);
          for (const int64_t slot : {0, 1, 2, 4}) layer.expect_untouched(slot);
        }
      }
    }
  }
}

TEST_P(GatedDeltaRuleTest, ExactModeGivesTheSameBitsForAnyChunkingBatchAndThreads) {
  for (const bool channels : kDecays) {
    SCOPED_TRACE(channels ? "a decay per channel" : "a decay per head");
    const std::vector<int64_t> lengths{90, 33, 1, 64}, starts{0, 90, 123, 124};
    const Geometry geometry{.Nk = 2, .Nv = 4, .Dk = 32, .Dv = 80, .channels = channels};
    Layer whole(*this, geometry, 188);
    for (size_t b = 0; b < lengths.size(); ++b) {
      whole.step(
          true,
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
          const int64_t rows =
              std::min<int64_t>(lengths[b] - done[b],
                                random() % 2 == 0 ? 1 : 1 + static_cast<int64_t>(random() % 40));
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
}

TEST_P(GatedDeltaRuleTest, FastModeMixesPrefillAndDecode) {
  for (const bool channels : kDecays) {
    SCOPED_TRACE(channels ? "a decay per channel" : "a decay per head");
    Layer layer(*this, {.Nk = 2, .Nv = 4, .Dk = 64, .Dv = 64, .channels = channels}, 160);
    layer.step(false, {{.slot = 2, .num_rows = 60}});
    layer.step(false,
               {{.slot = 5, .first = 100, .num_rows = 50},
                {.slot = 2, .context_len = 60, .first = 60, .num_rows = 1},
                {.slot = 7, .first = 150, .num_rows = 3}},
               {}, 3);
    layer.expect_near_reference(0, 61, 2);
    layer.expect_near_reference(100, 50, 5);
    layer.expect_near_reference(150, 3, 7);
    for (const int64_t slot : {0, 1, 3, 4, 6, 8}) layer.expect_untouched(slot);
  }
}

TEST_P(GatedDeltaRuleTest, SnapshotsHoldTheStateAfterExactlyTheirTokens) {
  for (const bool channels : kDecays) {
    SCOPED_TRACE(channels ? "a decay per channel" : "a decay per head");
    const Geometry geometry{.Nk = 1, .Nv = 2, .Dk = 32, .Dv = 70, .channels = channels};
    const std::vector<StateSnapshot> snapshots{{.sequence = 0, .num_tokens = 1, .slot = 3},
                                               {.sequence = 0, .num_tokens = 64, .slot = 4},
                                               {.sequence = 0, .num_tokens = 77, .slot = 5},
                                               {.sequence = 0, .num_tokens = 100, .slot = 6},
                                               {.sequence = 1, .num_tokens = 2, .slot = 7}};
    for (const bool exact : {false, true}) {
      SCOPED_TRACE(exact ? "exact" : "fast");
      Layer layer(*this, geometry, 110);
      layer.step(exact, {{.slot = 1, .num_rows = 100}, {.slot = 2, .first = 100, .num_rows = 3}},
                 snapshots, 2);
      layer.expect_near_reference(0, 100, 1);
      EXPECT_EQ(layer.state(6), layer.state(1)) << "a snapshot at the end is the working state";
      for (const auto& [tokens, slot] : {std::pair<int64_t, int64_t>{1, 3}, {64, 4}, {77, 5}}) {
        layer.expect_near_reference(0, tokens, slot);
        Layer shorter(*this, geometry, 110);  // the same tokens and nothing after them
        shorter.step(exact, {{.slot = 1, .num_rows = tokens}});
        if (exact) {
          EXPECT_EQ(layer.state(slot), shorter.state(1)) << tokens << " tokens";
        }
      }
      layer.expect_near_reference(100, 2, 7);
      layer.expect_untouched(0);
      layer.expect_untouched(8);
    }
  }
}

TEST_P(GatedDeltaRuleTest, SnapshotsOnTheGridChangeNoBits) {
  for (const bool channels : kDecays) {
    SCOPED_TRACE(channels ? "a decay per channel" : "a decay per head");
    const Geometry geometry{.Nk = 1, .Nv = 2, .Dk = 64, .Dv = 64, .channels = channels};
    Layer plain(*this, geometry, 200), with(*this, geometry, 200), continued(*this, geometry, 200);
    plain.step(false, {{.slot = 1, .num_rows = 200}});
    with.step(false, {{.slot = 1, .num_rows = 200}},
              {{.sequence = 0, .num_tokens = 64, .slot = 3},
               {.sequence = 0, .num_tokens = 128, .slot = 4}});
    EXPECT_EQ(plain.outputs(0, 200), with.outputs(0, 200));
    EXPECT_EQ(plain.state(1), with.state(1));
    continued.step(false, {{.slot = 1, .num_rows = 128}});
    EXPECT_EQ(with.state(4), continued.state(1));
    continued.step(false, {{.slot = 1, .context_len = 128, .first = 128, .num_rows = 72}});
    EXPECT_EQ(plain.outputs(128, 72), continued.outputs(128, 72));
  }
}

// A batch that was padded to a captured size: rows and a sequence that are none.
TEST_P(GatedDeltaRuleTest, LeavesThePoolAloneForPadding) {
  if (!on_cuda()) GTEST_SKIP() << "batches are padded on a device that captures";
  constexpr int64_t kSlotNumbers = 2 * 5 * 8;
  DeviceTensor states = poisoned({4, 2, 5, 8}, DType::kF32);
  const DeviceTensor qkv = upload(testing::random_tensor({5, 2 * 8 + 2 * 5}, DType::kBf16, 1));
  const DeviceTensor ab = upload(testing::random_tensor({5, 2}, DType::kF32, 2));
  const DeviceTensor per_head = upload(testing::random_tensor({2}, DType::kF32, 3));
  DeviceTensor y = poisoned({5, 2 * 5}, DType::kBf16);
  const std::vector<int32_t> query_start{0, 3, 5}, context_lens{0, 0}, slots{2, -1};
  ForwardContext forward;
  forward.query_start = query_start;
  forward.context_lens = context_lens;
  forward.state_slots = slots;
  upload_batch(forward);
  const SnapshotLayer snapshots{.conv = {}, .recurrent = states.view(), .scales = {}};
  const Status status = gated_delta_rule_cuda(static_cast<CudaContext&>(context()),
                                              {.qkv = qkv.view(),
                                               .a = ab.view(),
                                               .b = ab.view(),
                                               .neg_exp_a_log = per_head.view(),
                                               .dt_bias = per_head.view(),
                                               .y = y.view(),
                                               .num_key_heads = 1,
                                               .key_dim = 8,
                                               .value_dim = 5,
                                               .state = {.conv = {}, .recurrent = states.view()},
                                               .snapshots = snapshots,
                                               .forward = &forward});
  ASSERT_TRUE(status.ok()) << status.message();
  const Tensor after = download(states);
  for (int64_t slot = 0; slot < 4; ++slot) {
    for (int64_t i = 0; i < kSlotNumbers; ++i) {
      EXPECT_EQ(std::isnan(after.view().row<float>(slot)[i]), slot != 2) << slot;
    }
  }
}

TEST_P(GatedDeltaRuleTest, SaysWhatDoesNotFit) {
  const DeviceTensor qkv = poisoned({2, 2 * 8 + 2 * 4}, DType::kF32);
  const DeviceTensor ab = poisoned({2, 2}, DType::kF32), per_head = poisoned({2}, DType::kF32);
  DeviceTensor y = poisoned({2, 8}, DType::kF32), states = poisoned({2, 2, 4, 8}, DType::kF32);
  DeviceTensor turned = poisoned({2, 2, 8, 4}, DType::kF32);
  std::vector<int32_t> query_start{0, 2}, context_lens{0}, slots{1};
  ForwardContext forward;
  forward.query_start = query_start;
  forward.context_lens = context_lens;
  forward.state_slots = slots;
  upload_batch(forward);
  const device::Buffer scratch = workspace(gated_delta_rule_workspace_bytes(
      context(), {.max_tokens = 2, .num_value_heads = 2, .key_dim = 8, .value_dim = 4}));
  const GatedDeltaRuleArgs args{.qkv = qkv.view(),
                                .a = ab.view(),
                                .b = ab.view(),
                                .neg_exp_a_log = per_head.view(),
                                .dt_bias = per_head.view(),
                                .y = y.view(),
                                .num_key_heads = 1,
                                .key_dim = 8,
                                .value_dim = 4,
                                .state = {.conv = {}, .recurrent = states.view()},
                                .forward = &forward,
                                .workspace = scratch.bytes()};
  ASSERT_TRUE(gated_delta_rule(context(), args).ok());
  const auto message = [&](const GatedDeltaRuleArgs& wrong) {
    return gated_delta_rule(context(), wrong).to_string();
  };
  GatedDeltaRuleArgs wrong = args;
  wrong.state.recurrent = turned.view();
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("Dv"));
  const DeviceTensor wide_a = poisoned({2, 2 * 8}, DType::kF32);
  wrong = args;
  wrong.a = wide_a.view();
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("dt_bias has Nv * Dk = 2"));
  wrong = args;
  wrong.num_key_heads = 3;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("2 * Nk * Dk"));
  wrong = args;
  wrong.beta_scale = 3;
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("beta_scale is 3, it must be 1 or 2"));
  wrong = args;
  if (on_cuda()) return;  // where there is no scratch
  wrong.workspace = {};
  EXPECT_THAT(message(wrong), ::testing::HasSubstr("workspace has 0 bytes"));
}

// A node starts from its parent's state and leaves its own in its slot.
TEST_P(GatedDeltaRuleTest, ANodeOfATreeHasTheBitsOfItsPathAlone) {
  for (const bool channels : kDecays) {
    for (const int64_t num_chain : {1, 3}) {
      for (const int64_t context : {0, 7}) {
        SCOPED_TRACE(fmt::format("context {} chain {} channels {}", context, num_chain, channels));
        constexpr int64_t kNodes = 5;
        const int64_t first = context + num_chain;
        const testing::Parents parents =
            testing::random_parents(kNodes, static_cast<uint64_t>(context + num_chain));
        const Geometry geometry{.Nk = 2, .Nv = 4, .Dk = 32, .Dv = 40, .channels = channels};
        Layer tree(*this, geometry, 40), alone(*this, geometry, 40), other(*this, geometry, 40);
        if (context > 0) {
          tree.step(true, {{.slot = 1, .context_len = 0, .first = 0, .num_rows = context}});
        }
        tree.step(true,
                  {{.slot = 8, .context_len = 0, .first = 20, .num_rows = 20},
                   {.slot = 1,
                    .context_len = context,
                    .first = context,
                    .num_rows = num_chain + kNodes,
                    .parents = parents}},
                  {}, 2);
        other.step(true, {{.slot = 8, .context_len = 0, .first = 20, .num_rows = 20}});
        EXPECT_EQ(tree.outputs(20, 20), other.outputs(20, 20));
        EXPECT_EQ(tree.state(8), other.state(8));
        tree.expect_untouched(7);
        for (int32_t node = 0; node < kNodes; ++node) {
          alone.step(true, {{.slot = 2, .context_len = 0, .first = 0, .num_rows = first}});
          EXPECT_EQ(tree.state(1), alone.state(2)) << "the state before the tree";
          int64_t position = first;
          for (const int32_t passed : testing::path_to(parents, node)) {
            alone.step(
                true,
                {{.slot = 2, .context_len = position++, .first = first + passed, .num_rows = 1}});
          }
          EXPECT_EQ(tree.outputs(first + node, 1), alone.outputs(first + node, 1)) << node;
          EXPECT_EQ(tree.state(2 + node), alone.state(2)) << node;
        }
      }
    }
  }
}

}  // namespace

}  // namespace heddle::ops
