// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/selective_scan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/linear_attention/selective_scan_reference.h"
#include "ops/linear_attention/snapshot_rows.h"
#include "ops/tree_fixture.h"
#include "support/tensors.h"

namespace heddle::ops {

namespace {

constexpr float kCanary = 768.0f;  // in every dtype
constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

class SelectiveScanTest : public DeviceTest {
 public:
  using DeviceTest::context_on;
  using DeviceTest::download;
  using DeviceTest::rounding_of;
  using DeviceTest::upload;
  using DeviceTest::upload_batch;
};

HEDDLE_ON_EVERY_DEVICE(SelectiveScanTest);

struct Part {
  int64_t slot = 1;
  int64_t context_len = 0;
  int64_t first = 0;  // row of the inputs
  int64_t num_rows = 0;
  testing::Parents parents = {};  // the last rows are nodes of a tree
};

// A layer's inputs for some rows, its weights and a pool of poisoned states.
class Layer {
 public:
  static constexpr int64_t kSlots = 9;

  Layer(SelectiveScanTest& test, int64_t C, int64_t N, int64_t num_inputs,
        DType dtype = DType::kF32, DType format = DType::kF32)
      : test_(test),
        C_(C),
        N_(N),
        dtype_(dtype),
        inputs_({num_inputs, 3 * C + 2 * N}, DType::kF32),
        decay_({C, N}, DType::kF32),
        dt_bias_({C}, DType::kF32),
        skip_({C}, DType::kF32),
        states_({kSlots, 1, C, N}, DType::kF32),
        y_(static_cast<size_t>(num_inputs * C), kPoison) {
    std::mt19937_64 random(7);
    std::normal_distribution<float> normal;
    for (Tensor* tensor : {&inputs_, &dt_bias_, &skip_}) {
      std::ranges::generate(tensor->span<float>(), [&] { return normal(random); });
    }
    inputs_.span<float>()[static_cast<size_t>(C)] = 30;  // beyond where softplus is its argument
    std::ranges::generate(decay_.span<float>(), [&] { return -std::exp(normal(random) - 1.0f); });
    std::ranges::fill(states_.span<float>(), kPoison);
    inputs_ = testing::converted(testing::converted(inputs_.view(), dtype).view(), DType::kF32);
    device_states_ = test.upload(states_);
    device_weights_[0] = test.upload(decay_);
    device_weights_[1] = test.upload(dt_bias_);
    device_weights_[2] = test.upload(skip_);
    if (format == DType::kF32) return;  // snapshots go to the working slots
    saved_ = test.upload(Tensor({kSlots, 1, C, N}, format));
    scales_ = test.upload(Tensor({kSlots, 1, C}, DType::kF32));
  }

  void step(const std::vector<Part>& parts, const std::vector<StateSnapshot>& snapshots = {},
            int num_threads = 1) {
    std::vector<int32_t> query_start{0}, context_lens, slots;
    std::vector<int64_t> rows;
    testing::StepTrees trees;
    for (const Part& part : parts) {
      query_start.push_back(query_start.back() + static_cast<int32_t>(part.num_rows));
      context_lens.push_back(static_cast<int32_t>(part.context_len));
      slots.push_back(static_cast<int32_t>(part.slot));
      for (int64_t t = 0; t < part.num_rows; ++t) rows.push_back(part.first + t);
      trees.add(part.context_len, part.num_rows, part.parents);
    }
    const auto T = std::ssize(rows);
    const int64_t width = inputs_.shape()[1];
    Tensor in({T, width}, DType::kF32), y({T, C_ + 2}, DType::kF32);
    std::ranges::fill(y.span<float>(), kCanary);
    for (int64_t t = 0; t < T; ++t) {
      std::copy_n(inputs_.view().row<float>(rows[static_cast<size_t>(t)]), width,
                  in.view().row<float>(t));
    }
    ForwardContext forward;
    forward.query_start = query_start;
    forward.context_lens = context_lens;
    forward.state_slots = slots;
    forward.snapshots = snapshots;
    trees.set(forward);
    test_.upload_batch(forward);
    const DeviceTensor device_in = test_.upload(testing::converted(in.view(), dtype_));
    const DeviceTensor device_dt = test_.upload(in);
    DeviceTensor device_y = test_.upload(testing::converted(y.view(), dtype_));
    // Columns of one tensor: x, dt, z, b, c.
    const auto columns = [&](const DeviceTensor& from, int64_t first, int64_t count) {
      const TensorView& view = from.view();
      return TensorView(view.as<std::byte>() + bytes_of(view.dtype, first), view.dtype, {T, count},
                        width);
    };
    SelectiveScanArgs args{.x = columns(device_in, 0, C_),
                           .dt = columns(device_dt, C_, C_),
                           .b = columns(device_in, 3 * C_, N_),
                           .c = columns(device_in, 3 * C_ + N_, N_),
                           .z = columns(device_in, 2 * C_, C_),
                           .neg_exp_a_log = device_weights_[0].view(),
                           .dt_bias = device_weights_[1].view(),
                           .skip = device_weights_[2].view(),
                           .y = {device_y.view().data, dtype_, {T, C_}, C_ + 2},
                           .state = {.conv = {}, .recurrent = device_states_.view()},
                           .forward = &forward};
    if (saved_.view().data != nullptr) {
      args.snapshots = {.conv = {}, .recurrent = saved_.view(), .scales = scales_.view()};
    }
    const Status status = selective_scan(test_.context_on(num_threads, false), args);
    ASSERT_TRUE(status.ok()) << status.to_string();
    y = testing::converted(test_.download(device_y).view(), DType::kF32);
    states_ = test_.download(device_states_);
    for (int64_t t = 0; t < T; ++t) {
      const float* row = y.view().row<float>(t);
      std::copy_n(row, C_, y_.begin() + rows[static_cast<size_t>(t)] * C_);
      EXPECT_EQ(row[C_], kCanary);
      EXPECT_EQ(row[C_ + 1], kCanary);
    }
  }

  [[nodiscard]] std::vector<float> outputs(int64_t first, int64_t count) const {
    return {y_.begin() + first * C_, y_.begin() + (first + count) * C_};
  }

  [[nodiscard]] std::vector<float> state(int64_t slot) {
    const float* from = states_.view().row<float>(slot);
    return {from, from + C_ * N_};
  }

  // The snapshot in a slot, as a resumed sequence has it.
  [[nodiscard]] std::vector<float> saved(int64_t slot) {
    Tensor codes = test_.download(saved_), scales = test_.download(scales_);
    const SnapshotLayer layer{.conv = {}, .recurrent = codes.view(), .scales = scales.view()};
    std::vector<float> rows(static_cast<size_t>(C_ * N_));
    decode_snapshot_rows(snapshot_rows(layer, slot, 0), C_, N_, rows.data());
    return rows;
  }

  void expect_untouched(int64_t slot) {
    EXPECT_TRUE(std::ranges::all_of(state(slot), [](float x) { return std::isnan(x); })) << slot;
  }

  // Outputs and state after the inputs [first, first + count) from a zero state.
  void expect_near_reference(int64_t first, int64_t count, int64_t slot) {
    const std::vector<float> got = outputs(first, count), got_state = state(slot);
    for (int64_t channel = 0; channel < C_; ++channel) {
      std::vector<ScanToken> tokens;
      for (int64_t t = first; t < first + count; ++t) {
        const float* row = inputs_.view().row<float>(t);
        tokens.push_back({.x = row[channel],
                          .dt = row[C_ + channel],
                          .z = row[2 * C_ + channel],
                          .b = row + 3 * C_,
                          .c = row + 3 * C_ + N_});
      }
      std::vector<double> h(static_cast<size_t>(N_));
      const auto at = static_cast<size_t>(channel);
      const std::vector<double> truth =
          selective_scan_reference(tokens, decay_.view().row<float>(channel),
                                   dt_bias_.span<float>()[at], skip_.span<float>()[at], h);
      double largest = 1;
      for (const double value : h) largest = std::max(largest, std::fabs(value));
      for (size_t t = 0; t < truth.size(); ++t) {
        const double rounding = SelectiveScanTest::rounding_of(dtype_) * std::fabs(truth[t]);
        // Sums of N terms as large as the state, and the exponentials of a long context.
        ASSERT_NEAR(static_cast<double>(got[t * static_cast<size_t>(C_) + at]), truth[t],
                    2e-5 * largest * (1 + std::fabs(truth[t])) + rounding)
            << "channel " << channel << ", token " << t;
      }
      for (size_t n = 0; n < h.size(); ++n) {
        ASSERT_NEAR(static_cast<double>(got_state[at * h.size() + n]), h[n], 4e-6 * largest);
      }
    }
  }

 private:
  SelectiveScanTest& test_;
  int64_t C_, N_;
  DType dtype_;
  Tensor inputs_;  // x, dt, z, b, c
  Tensor decay_, dt_bias_, skip_, states_;
  std::vector<float> y_;
  DeviceTensor device_states_, device_weights_[3], saved_, scales_;
};

// One channel of two numbers, worked out by hand.
TEST(SelectiveScanReferenceTest, GivesTheNumbersOfAnExample) {
  const float a[] = {-1, -2}, b[][2] = {{1, 0.5f}, {0.5f, 1}}, c[][2] = {{1, 1}, {1, -1}};
  std::vector<double> state(2);
  const std::vector<double> y =
      selective_scan_reference({{.x = 1, .dt = 0, .z = 1, .b = b[0], .c = c[0]},
                                {.x = 2, .dt = 1, .z = -1, .b = b[1], .c = c[1]}},
                               a, 0, 0.5f, state);
  EXPECT_NEAR(y[0], 1.1256261, 1e-7);
  EXPECT_NEAR(y[1], 0.0408557, 1e-7);
  EXPECT_NEAR(state[0], 1.4996777, 1e-7);
  EXPECT_NEAR(state[1], 2.6515909, 1e-7);
}

TEST_P(SelectiveScanTest, MatchesTheReferenceForAnySizes) {
  for (const DType dtype : activation_dtypes()) {
    for (const int64_t C : {1, 7, 16, 130}) {
      for (const int64_t N : {1, 5, 16, 33, 64}) {
        SCOPED_TRACE(fmt::format("{} C {} N {}", to_string(dtype), C, N));
        Layer layer(*this, C, N, 23, dtype);
        layer.step({{.slot = 3, .num_rows = 22}}, {}, 2);
        layer.step({{.slot = 3, .context_len = 22, .first = 22, .num_rows = 1}});
        layer.expect_near_reference(0, 23, 3);
        for (const int64_t slot : {0, 1, 2, 4, 5}) layer.expect_untouched(slot);
      }
    }
  }
}

TEST_P(SelectiveScanTest, GivesTheSameBitsWhereverThePromptIsSplitAndInAnyCompany) {
  constexpr int64_t kTokens = 40;
  Layer whole(*this, 67, 16, kTokens + 25);
  whole.step({{.slot = 1, .num_rows = kTokens}});
  for (const int64_t split : {1, 2, 15, 16, 17, 39}) {
    SCOPED_TRACE(split);
    Layer parts(*this, 67, 16, kTokens + 25);
    parts.step({{.slot = 7, .first = kTokens, .num_rows = 25}, {.slot = 1, .num_rows = split}}, {},
               3);
    parts.step({{.slot = 1, .context_len = split, .first = split, .num_rows = kTokens - split}});
    EXPECT_EQ(whole.outputs(0, kTokens), parts.outputs(0, kTokens));
    EXPECT_EQ(whole.state(1), parts.state(1));
    parts.expect_near_reference(kTokens, 25, 7);
  }
}

TEST_P(SelectiveScanTest, SnapshotsHoldTheStateAfterExactlyTheirTokens) {
  const std::vector<StateSnapshot> wanted{{.sequence = 0, .num_tokens = 1, .slot = 3},
                                          {.sequence = 0, .num_tokens = 16, .slot = 4},
                                          {.sequence = 0, .num_tokens = 20, .slot = 5},
                                          {.sequence = 1, .num_tokens = 2, .slot = 6}};
  for (const DType format : {DType::kF32, DType::kBf16, DType::kI8}) {
    SCOPED_TRACE(to_string(format));
    Layer layer(*this, 37, 12, 30, DType::kF32, format);
    layer.step({{.slot = 1, .num_rows = 20}, {.slot = 2, .first = 20, .num_rows = 5}}, wanted, 2);
    for (const StateSnapshot& snapshot : wanted) {
      Layer alone(*this, 37, 12, 30);
      alone.step(
          {{.slot = 1, .first = snapshot.sequence == 0 ? 0 : 20, .num_rows = snapshot.num_tokens}});
      const std::vector<float> truth = alone.state(1);
      const std::vector<float> got =
          format == DType::kF32 ? layer.state(snapshot.slot) : layer.saved(snapshot.slot);
      if (format == DType::kF32) {
        EXPECT_EQ(got, truth);
        continue;
      }
      for (size_t row = 0; row < truth.size(); row += 12) {
        float largest = 0;
        for (size_t n = row; n < row + 12; ++n) largest = std::max(largest, std::fabs(truth[n]));
        for (size_t n = row; n < row + 12; ++n) {
          EXPECT_NEAR(got[n], truth[n], largest * (format == DType::kI8 ? 0.5f / 126 : 0x1p-8f));
        }
      }
    }
  }
}

// A node starts from its parent's state and leaves its own in its slot.
TEST_P(SelectiveScanTest, ANodeOfATreeHasTheBitsOfItsPathAlone) {
  for (const int64_t num_chain : {1, 3}) {
    for (const int64_t context : {0, 7}) {
      SCOPED_TRACE(fmt::format("context {} chain {}", context, num_chain));
      constexpr int64_t kNodes = 5;
      const int64_t first = context + num_chain;
      const testing::Parents parents =
          testing::random_parents(kNodes, static_cast<uint64_t>(context + num_chain));
      Layer tree(*this, 150, 16, 40), alone(*this, 150, 16, 40);
      if (context > 0) tree.step({{.slot = 1, .num_rows = context}});
      tree.step({{.slot = 8, .first = 20, .num_rows = 20},
                 {.slot = 1,
                  .context_len = context,
                  .first = context,
                  .num_rows = num_chain + kNodes,
                  .parents = parents}},
                {}, 2);
      for (int32_t node = 0; node < kNodes; ++node) {
        alone.step({{.slot = 2, .num_rows = first}});
        EXPECT_EQ(tree.state(1), alone.state(2)) << "the state before the tree";
        int64_t position = first;
        for (const int32_t passed : testing::path_to(parents, node)) {
          alone.step(
              {{.slot = 2, .context_len = position++, .first = first + passed, .num_rows = 1}});
        }
        EXPECT_EQ(tree.outputs(first + node, 1), alone.outputs(first + node, 1)) << node;
        EXPECT_EQ(tree.state(2 + node), alone.state(2)) << node;
      }
    }
  }
}

TEST_P(SelectiveScanTest, SaysWhatDoesNotFit) {
  const DeviceTensor x = poisoned({2, 8}, DType::kF32), b = poisoned({2, 4}, DType::kF32);
  const DeviceTensor decay = poisoned({8, 4}, DType::kF32), vector = poisoned({8}, DType::kF32);
  DeviceTensor y = poisoned({2, 8}, DType::kF32), states = poisoned({2, 1, 8, 4}, DType::kF32);
  DeviceTensor turned = poisoned({2, 1, 4, 8}, DType::kF32);
  const std::vector<int32_t> query_start{0, 2}, context_lens{0}, slots{1};
  ForwardContext forward;
  forward.query_start = query_start;
  forward.context_lens = context_lens;
  forward.state_slots = slots;
  upload_batch(forward);
  const SelectiveScanArgs args{.x = x.view(),
                               .dt = x.view(),
                               .b = b.view(),
                               .c = b.view(),
                               .z = x.view(),
                               .neg_exp_a_log = decay.view(),
                               .dt_bias = vector.view(),
                               .skip = vector.view(),
                               .y = y.view(),
                               .state = {.conv = {}, .recurrent = states.view()},
                               .forward = &forward};
  ASSERT_TRUE(selective_scan(context(), args).ok());
  const auto message = [&](const auto& change) {
    SelectiveScanArgs wrong = args;
    change(wrong);
    return selective_scan(context(), wrong).to_string();
  };
  EXPECT_THAT(message([&](auto& wrong) { wrong.c = x.view(); }), ::testing::HasSubstr("c has N"));
  EXPECT_THAT(message([&](auto& wrong) { wrong.dt = b.view(); }), ::testing::HasSubstr("dt has C"));
  EXPECT_THAT(message([&](auto& wrong) { wrong.state.recurrent = turned.view(); }),
              ::testing::HasSubstr("state.recurrent has C"));
  const DeviceTensor wide = poisoned({2, 65}, DType::kF32), more = poisoned({8, 65}, DType::kF32);
  DeviceTensor large = poisoned({2, 1, 8, 65}, DType::kF32);
  EXPECT_THAT(message([&](auto& wrong) {
                wrong.b = wrong.c = wide.view();
                wrong.neg_exp_a_log = more.view();
                wrong.state.recurrent = large.view();
              }),
              ::testing::HasSubstr("it must lie between 1 and 64"));
}

}  // namespace

}  // namespace heddle::ops
