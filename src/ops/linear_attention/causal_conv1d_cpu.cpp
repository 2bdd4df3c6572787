// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "ops/linear_attention/causal_conv1d.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/linear_attention/causal_conv1d_cpu.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/load-inl.h"
#include "ops/simd/math-inl.h"

// Channels that a task computes: their transposed weights and inputs fit into the first-level
// cache.
#ifndef HEDDLE_OPS_CAUSAL_CONV1D_CHANNELS_
#define HEDDLE_OPS_CAUSAL_CONV1D_CHANNELS_

namespace heddle::ops::conv {

constexpr int64_t kTaskChannels = 256;
constexpr int64_t kMaxWidth = 8;

// The inputs of a sequence. Row t = -1 is the last input before the step, which is in the state.
struct ConvInputs {
  const float* x = nullptr;  // input of the first new row
  int64_t stride = 0;
  const float* state = nullptr;  // [W - 1, C]; null: the earlier inputs are zeros
  const float* zeros = nullptr;
  int64_t W = 0;
  int64_t C = 0;
  const ForwardContext* forward = nullptr;
  int64_t sequence = 0;
  int64_t num_chain_rows = 0;  // the rows after these are nodes of a tree

  // The row whose token precedes the token of row `t`.
  [[nodiscard]] int64_t previous(int64_t t) const {
    return t < num_chain_rows ? t - 1 : forward->parent_row(sequence, t);
  }

  // Sets pointers to the `count` inputs that end with row `t`, oldest first.
  void last_rows(int64_t t, int64_t count, const float** rows) const {
    for (int64_t m = count - 1; m >= 0; --m, t = previous(t)) rows[m] = row(t);
  }

  [[nodiscard]] const float* row(int64_t t) const {
    if (t >= 0) return x + t * stride;
    return state == nullptr ? zeros : state + (W - 1 + t) * C;
  }
};

}  // namespace heddle::ops::conv
#endif

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::conv::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;

// Computes `count` channels of one output row from the W input rows u[m] and the weights w[m] of
// all channels; `bias` may be null.
template <class D>
HWY_INLINE void convolve_row(D d, const float* const* u, const float (*w)[kTaskChannels],
                             const float* bias, int64_t W, int64_t count, bool silu, float* y) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t c = 0; c < count; c += lanes) {
    auto sum = hn::Mul(hn::LoadU(d, w[0] + c), hn::LoadU(d, u[0] + c));
    for (int64_t m = 1; m < W; ++m) {
      sum = hn::MulAdd(hn::LoadU(d, w[m] + c), hn::LoadU(d, u[m] + c), sum);
    }
    if (bias != nullptr) sum = hn::Add(sum, hn::LoadU(d, bias + c));
    hn::StoreU(silu ? math::Silu(d, sum) : sum, d, y + c);
  }
}

// w[m][c] = weight[c, m]: transposed, so that a SIMD lane has a channel.
HWY_INLINE void transpose_weight(const float* weight, int64_t stride, int64_t W, int64_t count,
                                 float (*w)[kTaskChannels]) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  if (W == 4 && stride == 4) {  // published models have this width or the next
    for (; c + lanes <= count; c += lanes) {
      hn::Vec<decltype(d)> w0, w1, w2, w3;
      hn::LoadInterleaved4(d, weight + c * 4, w0, w1, w2, w3);
      hn::Store(w0, d, w[0] + c);
      hn::Store(w1, d, w[1] + c);
      hn::Store(w2, d, w[2] + c);
      hn::Store(w3, d, w[3] + c);
    }
  }
  if (W == 3 && stride == 3) {
    for (; c + lanes <= count; c += lanes) {
      hn::Vec<decltype(d)> w0, w1, w2;
      hn::LoadInterleaved3(d, weight + c * 3, w0, w1, w2);
      hn::Store(w0, d, w[0] + c);
      hn::Store(w1, d, w[1] + c);
      hn::Store(w2, d, w[2] + c);
    }
  }
  for (; c < count; ++c) {
    for (int64_t m = 0; m < W; ++m) w[m][c] = weight[c * stride + m];
  }
}

// Convolves `count` channels of `num_rows` rows; inputs, weight, bias and y must point to the first
// of these channels.
void convolve(const ConvInputs& inputs, const float* weight, int64_t weight_stride,
              const float* bias, int64_t count, int64_t num_rows, bool silu, float* y,
              int64_t y_stride) {
  const hn::ScalableTag<float> d;
  const int64_t W = inputs.W;
  HWY_ALIGN float w[kMaxWidth][kTaskChannels];
  transpose_weight(weight, weight_stride, W, count, w);
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = count / lanes * lanes;
  for (int64_t t = 0; t < num_rows; ++t) {
    std::array<const float*, kMaxWidth> u{};
    inputs.last_rows(t, W, u.data());
    float* out = y + t * y_stride;
    convolve_row(d, u.data(), w, bias, W, whole, silu, out);
    for (int64_t c = whole; c < count; ++c) {
      float sum = w[0][c] * u[0][c];
      for (int64_t m = 1; m < W; ++m) {
        sum = hn::GetLane(hn::MulAdd(hn::Set(d, w[m][c]), hn::Set(d, u[static_cast<size_t>(m)][c]),
                                     hn::Set(d, sum)));
      }
      if (bias != nullptr) sum += bias[c];
      out[c] = silu ? hn::GetLane(math::Silu(d, hn::Set(d, sum))) : sum;
    }
  }
}

}  // namespace heddle::ops::conv::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

namespace conv {

HWY_EXPORT(convolve);

namespace {

// Fewest outputs for which a second thread is used.
constexpr int64_t kMinOutputsToShare = 16384;

// Copies the W - 1 inputs that end with row `t` to `to` [W - 1, C].
void copy_window(const ConvInputs& inputs, int64_t t, int64_t count, float* to) {
  std::array<const float*, kMaxWidth> rows{};
  inputs.last_rows(t, inputs.W - 1, rows.data());
  for (int64_t m = 0; m < inputs.W - 1; ++m) {
    std::memmove(to + m * inputs.C, rows[static_cast<size_t>(m)],
                 static_cast<size_t>(count) * sizeof(float));
  }
}

void run_channels(const CausalConv1dArgs& args, int64_t b, int64_t first, int64_t count) {
  static constexpr std::array<float, static_cast<size_t>(kTaskChannels)> kZeros{};
  const ForwardContext& forward = *args.forward;
  const int64_t start = forward.query_start[static_cast<size_t>(b)];
  const int64_t num_rows = forward.num_rows(b);
  const int64_t num_chain_rows = forward.num_chain_rows(b);
  const int64_t slot = forward.state_slots[static_cast<size_t>(b)];
  float* state = args.state.conv.row<float>(slot) + first;
  const bool fresh = forward.context_lens[static_cast<size_t>(b)] == 0;
  const ConvInputs inputs{.x = args.x.row<float>(start) + first,
                          .stride = args.x.row_stride,
                          .state = fresh ? nullptr : state,
                          .zeros = kZeros.data(),
                          .W = args.weight.shape[1],
                          .C = args.x.shape[1],
                          .forward = &forward,
                          .sequence = b,
                          .num_chain_rows = num_chain_rows};
  HWY_DYNAMIC_DISPATCH(convolve)
  (inputs, args.weight.row<float>(first), args.weight.row_stride,
   args.bias.data == nullptr ? nullptr : args.bias.as<float>() + first, count, num_rows, args.silu,
   args.y.row<float>(start) + first, args.y.row_stride);
  for (const StateSnapshot& snapshot : forward.snapshots_of(b)) {
    copy_window(inputs, snapshot.num_tokens - 1, count,
                args.snapshots.conv.row<float>(snapshot.slot) + first);
  }
  for (int64_t t = num_chain_rows; t < num_rows; ++t) {
    copy_window(inputs, t, count,
                args.state.conv.row<float>(slot + 1 + t - num_chain_rows) + first);
  }
  // The working slot is written last, oldest row first, because the window moves within the slot.
  copy_window(inputs, num_chain_rows - 1, count, state);
}

}  // namespace

}  // namespace conv

Status causal_conv1d_cpu(CpuContext& context, const CausalConv1dArgs& args) {
  const int64_t C = args.x.shape[1];
  const int64_t num_blocks = (C + conv::kTaskChannels - 1) / conv::kTaskChannels;
  const int64_t num_tasks = args.forward->num_sequences() * num_blocks;
  const auto run = [&](int64_t task, int /*worker*/) {
    const int64_t first = task % num_blocks * conv::kTaskChannels;
    conv::run_channels(args, task / num_blocks, first, std::min(conv::kTaskChannels, C - first));
  };
  if (args.x.shape[0] * C < conv::kMinOutputsToShare) {
    for (int64_t task = 0; task < num_tasks; ++task) run(task, 0);
  } else {
    context.pool.parallel_for(num_tasks, run);
  }
  return {};
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
