// SPDX-License-Identifier: Apache-2.0
#include "ops/linear_attention/gated_delta_rule_sm90.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ops/linear_attention/gated_delta_rule_sm90_fixture.h"
#include "support/tensors.h"

namespace heddle::ops {

namespace {

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
    for (const int32_t context_len : {0, 1, 63, 64, 65, 127, 200}) {
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

// More than the lanes that look them up: the chunks behind them must follow. A snapshot where a
// chunk ends anyway changes no other.
TEST_P(HopperDeltaRuleTest, KeepsASnapshotAtEveryChunkOfAPrompt) {
  constexpr int32_t kChunk = 64, kCount = 36, kContext = 5;
  std::vector<StateSnapshot> snapshots;
  for (int32_t i = 0; i < kCount; ++i) {
    snapshots.push_back({.sequence = 1, .num_tokens = kChunk * (i + 1) - kContext, .slot = i});
  }
  make({.rows = {70, kChunk * kCount + 9}, .context_lens = {3, kContext}, .snapshots = snapshots},
       12);
  run();
  expect_near_reference(kRounding);
  const auto state_of = [&](const Tensor& states, int64_t slot) {
    return TensorView(states.view().row<float>(slot), DType::kF32, Shape{2 * kDim * kDim});
  };
  const Tensor all = std::move(snapshots_after_);
  for (const int32_t i : {0, 17, 31, 32, 33, 35}) {
    step_.snapshots = {{.sequence = 1, .num_tokens = kChunk * (i + 1) - kContext, .slot = 0}};
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
