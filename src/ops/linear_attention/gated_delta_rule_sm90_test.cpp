// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/gated_delta_rule_sm90.h"

#include <cmath>
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/device_fixture.h"
#include "ops/linear_attention/delta_rule_core.h"
#include "ops/linear_attention/gated_delta_rule_reference.h"
#include "support/tensors.h"

namespace heddle::ops {

namespace {

using testing::random_tensor;
using testing::to_doubles;

constexpr int64_t kDim = 128;

// Products of numbers rounded to bf16, with fp32 sums: 2^-8 for each factor, averaged over 128.
// Keys that are all nearly the same cancel and lose more.
constexpr double kRounding = 6e-3;
constexpr double kParallelRounding = 4e-2;

enum class Kind : uint8_t { kRandom, kParallelKeys, kStrongDecay, kSlowDecay };

struct Step {
  int64_t Nk = 1, Nv = 2;
  std::vector<int32_t> rows;          // of each sequence
  std::vector<int32_t> context_lens;  // likewise
  std::vector<StateSnapshot> snapshots = {};
  Kind kind = Kind::kRandom;
  DType snapshot_dtype = DType::kF32;
};

class HopperDeltaRuleTest : public DeviceTest {
 protected:
  void SetUp() override {
    DeviceTest::SetUp();
    if (IsSkipped()) return;
    const device::CudaProperties& gpu = cuda_context().gpu.properties();
    if (gpu.major != 9) GTEST_SKIP() << gpu.name << " is no Hopper GPU";
  }

  CudaContext& cuda_context() { return static_cast<CudaContext&>(context()); }

  // The inputs of a step; slot b + 1 is the working slot of sequence b, snapshots go to a pool of
  // their own.
  void make(const Step& step, uint64_t seed) {
    step_ = step;
    query_start_ = {0};
    slots_.clear();
    for (const int32_t rows : step.rows) {
      query_start_.push_back(query_start_.back() + rows);
      slots_.push_back(static_cast<int32_t>(slots_.size()) + 1);
    }
    T_ = query_start_.back();
    const int64_t width = (2 * step.Nk + step.Nv) * kDim;
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal;
    Tensor inputs({T_, width}, DType::kF32);
    for (float& x : inputs.span<float>()) x = normal(random);
    if (step.kind == Kind::kParallelKeys) {
      std::vector<float> key(static_cast<size_t>(kDim));
      for (float& x : key) x = normal(random);
      for (int64_t t = 0; t < T_; ++t) {
        float* keys = inputs.view().row<float>(t) + step.Nk * kDim;
        for (int64_t c = 0; c < step.Nk * kDim; ++c) {
          keys[c] = key[static_cast<size_t>(c % kDim)] + 0.15f * keys[c];
        }
      }
    }
    qkv_ = testing::converted(inputs.view(), DType::kBf16);
    a_ = random_tensor({T_, step.Nv}, DType::kF32, seed + 1);
    b_ = random_tensor({T_, step.Nv}, DType::kF32, seed + 2);
    dt_bias_ = random_tensor({step.Nv}, DType::kF32, seed + 3);
    neg_exp_a_log_ = Tensor({step.Nv}, DType::kF32);
    for (float& x : neg_exp_a_log_.span<float>()) {
      switch (step.kind) {
        case Kind::kRandom:
          x = -std::exp(0.5f * normal(random) - 1.0f);
          break;
        case Kind::kParallelKeys:
          x = -1e-4f;
          break;
        case Kind::kStrongDecay:
          x = -5.0f;
          break;
        case Kind::kSlowDecay:
          x = -1e-3f;
      }
    }
    if (step.kind == Kind::kParallelKeys) {
      for (float& x : b_.span<float>()) x = 6.0f;
    }
    const int64_t num_slots = std::ssize(step.rows) + 1;
    states_ = random_tensor({num_slots, step.Nv, kDim, kDim}, DType::kF32, seed + 4);
    const int64_t num_snapshots = std::ssize(step.snapshots) + 1;
    snapshots_ = Tensor({num_snapshots, step.Nv, kDim, kDim}, step.snapshot_dtype);
    testing::poison(snapshots_);
  }

  // Leaves the first `count` sequences in the step.
  void keep_sequences(size_t count) {
    step_.rows.resize(count);
    step_.context_lens.resize(count);
    query_start_.resize(count + 1);
    slots_.resize(count);
    T_ = query_start_.back();
    for (Tensor* rows : {&qkv_, &a_, &b_}) {
      const TensorView all = std::as_const(*rows).view();
      *rows =
          testing::converted(TensorView(all.data, all.dtype, Shape{T_, all.shape[1]}), all.dtype);
    }
  }

  // Runs the step of make(), from its states.
  void run(bool exact = false) {
    ForwardContext forward;
    forward.query_start = query_start_;
    forward.context_lens = step_.context_lens;
    forward.state_slots = slots_;
    forward.snapshots = step_.snapshots;
    upload_batch(forward);
    const DeviceTensor qkv = upload(qkv_), a = upload(a_), b = upload(b_);
    const DeviceTensor dt_bias = upload(dt_bias_), neg_exp_a_log = upload(neg_exp_a_log_);
    DeviceTensor states = upload(states_), snapshots = upload(snapshots_);
    DeviceTensor scales = poisoned({snapshots_.shape()[0], step_.Nv, kDim}, DType::kF32);
    DeviceTensor y = poisoned({T_, step_.Nv * kDim}, DType::kBf16);
    const device::Buffer scratch =
        workspace(gated_delta_rule_workspace_bytes(context(exact), {.max_tokens = T_,
                                                                    .num_value_heads = step_.Nv,
                                                                    .key_dim = kDim,
                                                                    .value_dim = kDim,
                                                                    .dtype = DType::kBf16}));
    GatedDeltaRuleArgs args{.qkv = qkv.view(),
                            .a = a.view(),
                            .b = b.view(),
                            .neg_exp_a_log = neg_exp_a_log.view(),
                            .dt_bias = dt_bias.view(),
                            .y = y.view(),
                            .num_key_heads = step_.Nk,
                            .key_dim = kDim,
                            .value_dim = kDim,
                            .state = {.conv = {}, .recurrent = states.view()},
                            .snapshots = {.conv = {}, .recurrent = snapshots.view(), .scales = {}},
                            .forward = &forward,
                            .workspace = scratch.bytes()};
    if (step_.snapshot_dtype == DType::kI8) args.snapshots.scales = scales.view();
    if (!exact) {
      ASSERT_TRUE(gated_delta_rule_sm90_fits(cuda_context(), args));
    }
    const Status status = gated_delta_rule(context(exact), args);
    ASSERT_TRUE(status.ok()) << status.message();
    y_ = download(y);
    states_after_ = download(states);
    snapshots_after_ = download(snapshots);
    scales_after_ = download(scales);
  }

  // Relative errors over all sequences and heads.
  void expect_near_reference(double tolerance) {
    double error = 0, norm = 0, state_error = 0, state_norm = 0;
    const Tensor inputs = testing::converted(qkv_.view(), DType::kF32);
    const std::vector<double> got = to_doubles(y_.view());
    const auto gate = [&](int64_t t, int64_t h) {
      const double x = static_cast<double>(a_.view().row<float>(t)[h]) +
                       static_cast<double>(dt_bias_.span<float>()[static_cast<size_t>(h)]);
      return static_cast<double>(neg_exp_a_log_.span<float>()[static_cast<size_t>(h)]) *
             std::log1p(std::exp(x));
    };
    for (size_t q = 0; q < step_.rows.size(); ++q) {
      const int64_t first = query_start_[q];
      for (int64_t h = 0; h < step_.Nv; ++h) {
        std::vector<float> g, beta;
        for (int64_t t = first; t < first + step_.rows[q]; ++t) {
          g.push_back(static_cast<float>(gate(t, h)));
          beta.push_back(static_cast<float>(
              1.0 / (1.0 + std::exp(-static_cast<double>(b_.view().row<float>(t)[h])))));
        }
        const float* row = inputs.view().row<float>(first);
        const int64_t width = inputs.shape()[1];
        const int64_t key_head = h / (step_.Nv / step_.Nk);
        const DeltaRuleHead head{.q = row + key_head * kDim,
                                 .k = row + (step_.Nk + key_head) * kDim,
                                 .v = row + 2 * step_.Nk * kDim + h * kDim,
                                 .q_stride = width,
                                 .k_stride = width,
                                 .v_stride = width,
                                 .g = g.data(),
                                 .beta = beta.data(),
                                 .num_tokens = step_.rows[q],
                                 .key_dim = kDim,
                                 .value_dim = kDim};
        std::vector<double> state(static_cast<size_t>(kDim * kDim));
        const auto matrix = [&](const Tensor& states, int64_t slot) {
          return states.view().row<float>(slot) + h * kDim * kDim;
        };
        if (step_.context_lens[q] > 0) {
          const float* before = matrix(states_, slots_[q]);
          for (size_t i = 0; i < state.size(); ++i) state[i] = static_cast<double>(before[i]);
        }
        const std::vector<double> want = delta_rule_reference(head, state);
        for (size_t i = 0; i < want.size(); ++i) {
          const size_t t = i / static_cast<size_t>(kDim), v = i % static_cast<size_t>(kDim);
          const size_t at = ((static_cast<size_t>(first) + t) * static_cast<size_t>(step_.Nv) +
                             static_cast<size_t>(h)) *
                                static_cast<size_t>(kDim) +
                            v;
          error += (got[at] - want[i]) * (got[at] - want[i]);
          norm += want[i] * want[i];
        }
        const float* after = matrix(states_after_, slots_[q]);
        for (size_t i = 0; i < state.size(); ++i) {
          const double difference = static_cast<double>(after[i]) - state[i];
          state_error += difference * difference;
          state_norm += state[i] * state[i];
        }
      }
    }
    EXPECT_LT(std::sqrt(error / norm), tolerance);
    EXPECT_LT(std::sqrt(state_error / state_norm), tolerance);
  }

  Step step_;
  int64_t T_ = 0;
  std::vector<int32_t> query_start_, slots_;
  Tensor qkv_, a_, b_, dt_bias_, neg_exp_a_log_, states_, snapshots_;
  Tensor y_, states_after_, snapshots_after_, scales_after_;
};

INSTANTIATE_TEST_SUITE_P(Cuda, HopperDeltaRuleTest, ::testing::Values(device::DeviceKind::kCuda));

TEST_P(HopperDeltaRuleTest, SmallestStepsMatchTheReference) {
  make({.rows = {64}, .context_lens = {0}}, 1);
  run();
  expect_near_reference(kRounding);
  make({.Nk = 1, .Nv = 1, .rows = {65, 2}, .context_lens = {3, 1}}, 2);
  run();
  expect_near_reference(kRounding);
  // Of two sequences chunks are prepared by one kernel and walked by another.
  make({.Nk = 1, .Nv = 1, .rows = {64, 66}, .context_lens = {0, 3}}, 14);
  run();
  expect_near_reference(kRounding);
}

TEST_P(HopperDeltaRuleTest, MatchesTheReferenceAtLengthsThatFillNoChunk) {
  for (const int32_t rows : {64, 65, 127, 128, 129, 257}) {
    for (const int32_t context_len : {0, 9}) {
      SCOPED_TRACE(fmt::format("{} rows after {}", rows, context_len));
      make({.Nk = 2, .Nv = 6, .rows = {rows}, .context_lens = {context_len}}, 3);
      run();
      expect_near_reference(kRounding);
    }
  }
}

TEST_P(HopperDeltaRuleTest, MixesPromptsAndDecode) {
  make({.Nk = 16,
        .Nv = 32,
        .rows = {70, 1, 200, 3, 64, 90, 63, 300},
        .context_lens = {1, 1, 0, 2, 3, 0, 4, 0}},
       4);
  run();
  expect_near_reference(kRounding);
}

// A sequence's few heads are walked beside the preparation of their chunks, those of more behind it
// in halves, many in one piece.
TEST_P(HopperDeltaRuleTest, HowManyHeadsThereAreChangesNoBits) {
  constexpr int32_t kRows = 200, kHeads = 8;
  make({.Nk = 4,
        .Nv = kHeads,
        .rows = std::vector<int32_t>(20, kRows),
        .context_lens = std::vector<int32_t>(20, 3)},
       10);
  run();
  expect_near_reference(kRounding);
  const Tensor y_of_all = std::move(y_), states_of_all = std::move(states_after_);
  for (const int32_t sequences : {7, 1}) {
    SCOPED_TRACE(sequences);
    keep_sequences(static_cast<size_t>(sequences));
    run();
    expect_near_reference(kRounding);
    const Shape rows{sequences * kRows, kHeads * kDim};
    EXPECT_TRUE(testing::same_bits(y_.view(), TensorView(y_of_all.view().data, y_.dtype(), rows)));
    for (int64_t slot = 1; slot <= sequences; ++slot) {
      const auto state_of = [&](const Tensor& states) {
        return TensorView(states.view().row<float>(slot), DType::kF32, Shape{kHeads * kDim * kDim});
      };
      EXPECT_TRUE(testing::same_bits(state_of(states_after_), state_of(states_of_all))) << slot;
    }
  }
}

// A long prompt's chunks are more than are prepared at once beside the walk: beside another
// sequence all are prepared first.
TEST_P(HopperDeltaRuleTest, ALongPromptHasTheSameBitsAloneAndBesideAnother) {
  constexpr int32_t kRows = 100 * 64 + 9, kHeads = 8;
  make({.Nk = kHeads, .Nv = kHeads, .rows = {kRows, 70}, .context_lens = {5, 0}}, 13);
  run();
  const Tensor y_of_both = std::move(y_), states_of_both = std::move(states_after_);
  keep_sequences(1);
  run();
  const Shape rows{kRows, kHeads * kDim};
  EXPECT_TRUE(testing::same_bits(y_.view(), TensorView(y_of_both.view().data, y_.dtype(), rows)));
  const auto state_of = [&](const Tensor& states) {
    return TensorView(states.view().row<float>(1), DType::kF32, Shape{kHeads * kDim * kDim});
  };
  EXPECT_TRUE(testing::same_bits(state_of(states_after_), state_of(states_of_both)));
}

TEST_P(HopperDeltaRuleTest, KeepsItsPrecisionWhereKeysAreParallelOrDecaysExtreme) {
  for (const auto& [kind, tolerance] : {std::pair(Kind::kParallelKeys, kParallelRounding),
                                        {Kind::kStrongDecay, kRounding},
                                        {Kind::kSlowDecay, kRounding}}) {
    SCOPED_TRACE(static_cast<int>(kind));
    make({.Nk = 1, .Nv = 3, .rows = {300}, .context_lens = {0}, .kind = kind}, 5);
    run();
    expect_near_reference(tolerance);
  }
}

TEST_P(HopperDeltaRuleTest, SnapshotsHoldTheStateAfterExactlyTheirTokens) {
  const std::vector<StateSnapshot> snapshots{{.sequence = 0, .num_tokens = 64, .slot = 0},
                                             {.sequence = 0, .num_tokens = 100, .slot = 1},
                                             {.sequence = 0, .num_tokens = 150, .slot = 2},
                                             {.sequence = 2, .num_tokens = 70, .slot = 3}};
  make({.rows = {150, 5, 70}, .context_lens = {0, 2, 8}, .snapshots = snapshots}, 6);
  run();
  expect_near_reference(kRounding);
  const auto state_of = [&](const Tensor& states, int64_t slot) {
    return TensorView(states.view().row<float>(slot), DType::kF32, Shape{2 * kDim * kDim});
  };
  EXPECT_TRUE(testing::same_bits(state_of(snapshots_after_, 2), state_of(states_after_, 1)));
  EXPECT_TRUE(testing::same_bits(state_of(snapshots_after_, 3), state_of(states_after_, 3)));
  const Tensor at_end = std::move(snapshots_after_);
  make({.rows = {64, 5, 70}, .context_lens = {0, 2, 8}}, 6);  // another shape: other inputs
  step_.snapshots = {{.sequence = 0, .num_tokens = 64, .slot = 0}};
  run();
  EXPECT_TRUE(testing::same_bits(state_of(snapshots_after_, 0), state_of(states_after_, 1)));
}

// More than the lanes that look them up: the chunks behind them must follow.
TEST_P(HopperDeltaRuleTest, KeepsASnapshotAtEveryChunkOfAPrompt) {
  constexpr int32_t kChunk = 64, kCount = 36;
  std::vector<StateSnapshot> snapshots;
  for (int32_t i = 0; i < kCount; ++i) {
    snapshots.push_back({.sequence = 1, .num_tokens = kChunk * (i + 1), .slot = i});
  }
  make({.rows = {70, kChunk * kCount + 9}, .context_lens = {3, 5}, .snapshots = snapshots}, 12);
  run();
  expect_near_reference(kRounding);
  const auto state_of = [&](const Tensor& states, int64_t slot) {
    return TensorView(states.view().row<float>(slot), DType::kF32, Shape{2 * kDim * kDim});
  };
  const Tensor all = std::move(snapshots_after_);
  for (const int32_t i : {0, 17, 31, 32, 33, 35}) {
    step_.snapshots = {{.sequence = 1, .num_tokens = kChunk * (i + 1), .slot = 0}};
    run();
    EXPECT_TRUE(testing::same_bits(state_of(snapshots_after_, 0), state_of(all, i))) << i;
  }
}

TEST_P(HopperDeltaRuleTest, RoundsSnapshotsAsTheRecurrentFormDoes) {
  for (const DType dtype : {DType::kBf16, DType::kI8}) {
    SCOPED_TRACE(to_string(dtype));
    make({.rows = {130},
          .context_lens = {0},
          .snapshots = {{.sequence = 0, .num_tokens = 130, .slot = 0}},
          .snapshot_dtype = dtype},
         7);
    run();
    const Tensor fast = std::move(snapshots_after_);
    double error = 0, norm = 0;
    for (int64_t row = 0; row < 2 * kDim; ++row) {
      for (int64_t c = 0; c < kDim; ++c) {
        const auto at = static_cast<size_t>(row * kDim + c);
        const double exact_number = static_cast<double>(states_after_.view().row<float>(1)[at]);
        const double stored =
            dtype == DType::kBf16
                ? static_cast<double>(to_float(fast.span<Bf16>()[at]))
                : static_cast<double>(fast.span<int8_t>()[at]) *
                      static_cast<double>(scales_after_.span<float>()[static_cast<size_t>(row)]);
        error += (stored - exact_number) * (stored - exact_number);
        norm += exact_number * exact_number;
      }
    }
    EXPECT_LT(std::sqrt(error / norm), dtype == DType::kBf16 ? 3e-3 : 1.2e-2);
    EXPECT_GT(norm, 0);
  }
}

// Decode has a form of its own (gated_delta_rule_step.h); with a snapshot after a step's last token
// both hold the same numbers, but for the rounding of the snapshot.
TEST_P(HopperDeltaRuleTest, DecodeMatchesTheReferenceAndTakesSnapshots) {
  for (const DType dtype : {DType::kF32, DType::kBf16, DType::kI8}) {
    SCOPED_TRACE(to_string(dtype));
    make({.Nk = 2,
          .Nv = 4,
          .rows = {1, 3, 8, 9, 1, 70},
          .context_lens = {5, 0, 2, 1, 0, 0},
          .snapshots = {{.sequence = 0, .num_tokens = 1, .slot = 1},
                        {.sequence = 1, .num_tokens = 2, .slot = 2},
                        {.sequence = 2, .num_tokens = 8, .slot = 3}},
          .snapshot_dtype = dtype},
         9);
    run();
    expect_near_reference(kRounding);
    const int64_t rows = step_.Nv * kDim;
    for (const auto& [slot, state] : {std::pair<int64_t, int64_t>(1, 1), {3, 3}}) {
      double error = 0, norm = 0;
      for (int64_t i = 0; i < rows * kDim; ++i) {
        const double number = static_cast<double>(states_after_.view().row<float>(state)[i]);
        const auto at = static_cast<size_t>(slot * rows * kDim + i);
        double stored = 0;
        if (dtype == DType::kF32) {
          stored = static_cast<double>(snapshots_after_.span<float>()[at]);
        } else if (dtype == DType::kBf16) {
          stored = static_cast<double>(to_float(snapshots_after_.span<Bf16>()[at]));
        } else {
          const auto row = static_cast<size_t>(slot * rows + i / kDim);
          stored = static_cast<double>(snapshots_after_.span<int8_t>()[at]) *
                   static_cast<double>(scales_after_.span<float>()[row]);
        }
        error += (stored - number) * (stored - number);
        norm += number * number;
      }
      EXPECT_LE(std::sqrt(error / norm), dtype == DType::kF32    ? 0.0
                                         : dtype == DType::kBf16 ? 3e-3
                                                                 : 1.2e-2);
    }
  }
}

TEST_P(HopperDeltaRuleTest, ForeignRowsDoNotMeetASequence) {
  make({.rows = {100, 64}, .context_lens = {0, 0}}, 8);
  run();
  const Tensor alone = std::move(y_);
  for (int64_t c = 0; c < qkv_.shape()[1]; ++c) {  // the first row behind the tail of sequence 0
    qkv_.view().row<Bf16>(100)[c] = Bf16{0x7fc0};
  }
  run();
  EXPECT_TRUE(testing::same_bits(TensorView(alone.view().data, DType::kBf16, Shape{100, 2 * kDim}),
                                 TensorView(y_.view().data, DType::kBf16, Shape{100, 2 * kDim})));
  for (const float x : states_after_.span<float>().subspan(2 * kDim * kDim, 2 * kDim * kDim)) {
    ASSERT_TRUE(std::isfinite(x));
  }
}

}  // namespace

}  // namespace heddle::ops
