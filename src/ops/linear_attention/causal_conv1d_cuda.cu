// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/draft_tree.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/linear_attention/causal_conv1d.h"

namespace heddle::ops {

namespace {

struct Params {
  const void* x;
  const float* weight;
  void* y;
  float* state;             // [slots, W - 1, C]
  float* snapshot_windows;  // likewise
  int64_t x_stride, weight_stride, y_stride, state_stride, snapshot_stride;
  int64_t T, B, C;
  int W;
  DeviceBatch batch;
};

constexpr int kThreads = 128;
constexpr int kRows = 8;      // of a block
constexpr int kMaxWidth = 8;  // W

// Row `t` of a sequence's inputs in one channel, where t = -1 is the last one before the step.
template <typename Scalar>
struct ChannelInputs {
  const Scalar* x;  // of the first row of the step
  int64_t stride;
  const float* state;  // null: zeros
  int64_t C;
  int W;

  __device__ ChannelInputs(const Params& p, int64_t b, int64_t channel)
      : x(static_cast<const Scalar*>(p.x) + p.batch.query_start[b] * p.x_stride + channel),
        stride(p.x_stride),
        state(nullptr),
        C(p.C),
        W(p.W) {
    const int64_t slot = p.batch.state_slots[b];
    if (slot >= 0 && p.batch.context_lens[b] > 0) {
      state = p.state + slot * p.state_stride + channel;
    }
  }

  [[nodiscard]] __device__ float at(int64_t t) const {
    if (t >= 0) return as_float(x[t * stride]);
    return state == nullptr ? 0.0f : state[(W - 1 + t) * C];
  }
};

// The `count` rows of a sequence that end with row `t`, oldest first.
__device__ void last_rows(const Params& p, int64_t b, int64_t t, int count,
                          int64_t (&rows)[kMaxWidth]) {
#pragma unroll
  for (int m = kMaxWidth - 1; m >= 0; --m) {
    if (m >= count) continue;
    rows[m] = t;
    t = t < 0 ? t - 1 : parent_row(p.batch, b, t);
  }
}

// A thread convolves one channel of kRows rows; the W inputs of a row come from the cache but for
// the first use. Moves x and y once and does 2 * W operations and a SiLU for each of T * C numbers:
// bandwidth-bound. The sum runs over ascending inputs.
template <typename Scalar>
__global__ void __launch_bounds__(kThreads) convolve_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const int64_t channel_blocks = ceil_div(p.C, kThreads);
  const int64_t channel = blockIdx.x % channel_blocks * kThreads + threadIdx.x;
  if (channel >= p.C) return;
  float weight[kMaxWidth];
#pragma unroll
  for (int m = 0; m < kMaxWidth; ++m) {
    weight[m] = m < p.W ? p.weight[channel * p.weight_stride + m] : 0.0f;
  }
  const int64_t first = blockIdx.x / channel_blocks * kRows;
  const int64_t end = min(first + kRows, p.T);
  for (int64_t row = first; row < end; ++row) {
    const int64_t b = p.batch.row_sequences[row];
    if (b < 0) continue;
    const ChannelInputs<Scalar> inputs(p, b, channel);
    int64_t rows[kMaxWidth];
    last_rows(p, b, row - p.batch.query_start[b], p.W, rows);
    float sum = __fmul_rn(weight[0], inputs.at(rows[0]));
#pragma unroll
    for (int m = 1; m < kMaxWidth; ++m) {
      if (m < p.W) sum = fmaf(weight[m], inputs.at(rows[m]), sum);
    }
    static_cast<Scalar*>(p.y)[row * p.y_stride + channel] =
        rounded<Scalar>(sum / (1.0f + expf(-sum)));
  }
}

// After the convolution: a thread writes one channel of a sequence's windows, first those of its
// snapshots and of nodes of its tree, then the working slot, whose oldest row is written first
// because the window moves within the slot. Moves 8 * (W - 1) * C bytes for each of them.
template <typename Scalar>
__global__ void __launch_bounds__(kThreads) keep_windows_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const int64_t channel_blocks = ceil_div(p.C, kThreads);
  const int64_t channel = blockIdx.x % channel_blocks * kThreads + threadIdx.x;
  const int64_t b = blockIdx.x / channel_blocks;
  const int64_t slot = p.batch.state_slots[b];
  if (channel >= p.C || slot < 0) return;
  const ChannelInputs<Scalar> inputs(p, b, channel);
  const auto keep = [&](int64_t num_tokens, float* to) {
    int64_t rows[kMaxWidth];
    last_rows(p, b, num_tokens - 1, p.W - 1, rows);
#pragma unroll
    for (int m = 0; m < kMaxWidth - 1; ++m) {
      if (m < p.W - 1) to[m * p.C + channel] = inputs.at(rows[m]);
    }
  };
  for (int32_t i = p.batch.snapshot_start[b]; i < p.batch.snapshot_start[b + 1]; ++i) {
    const StateSnapshot& snapshot = p.batch.snapshots[i];
    keep(snapshot.num_tokens, p.snapshot_windows + snapshot.slot * p.snapshot_stride);
  }
  const int64_t num_rows = p.batch.query_start[b + 1] - p.batch.query_start[b];
  const int64_t num_chain = num_chain_rows(p.batch, b, num_rows);
  for (int64_t t = num_chain; t < num_rows; ++t) {
    keep(t + 1, p.state + (slot + 1 + t - num_chain) * p.state_stride);
  }
  keep(num_chain, p.state + slot * p.state_stride);
}

constexpr int kRunThreads = 64;
constexpr int kRunRows = 32;  // of a thread
constexpr int kRunWidth = 4;  // W

// Eight neighbouring channels of row `t` of a sequence's inputs, before the step.
__device__ inline void load_kept(const Params& p, int64_t b, int64_t channel, int64_t t,
                                 float (&values)[kOctet]) {
  const int64_t slot = p.batch.state_slots[b];
  if (slot >= 0 && p.batch.context_lens[b] > 0) {
    load_octet(p.state + slot * p.state_stride + (kRunWidth - 1 + t) * p.C + channel, values);
    return;
  }
#pragma unroll
  for (int j = 0; j < kOctet; ++j) values[j] = 0;
}

// The same convolution with a window of four, for whole octets of channels: a thread goes through
// eight channels of kRows rows with the window in registers, so that every input is loaded once,
// kAtOnce rows at a time. With kDecode no sequence has more than one row, and the thread that
// computes it also keeps its windows. Operations and their order are those of convolve_kernel().
template <typename Scalar, bool kDecode>
__global__ void __launch_bounds__(kRunThreads) run_kernel(const __grid_constant__ Params p) {
  constexpr int kRows = kDecode ? 1 : kRunRows;
  constexpr int kAtOnce = kDecode ? 1 : 4;
  static_assert(kRows % kAtOnce == 0);
  const int64_t channel_blocks = ceil_div(p.C, kRunThreads * kOctet);
  const int64_t channel =
      (blockIdx.x % channel_blocks * kRunThreads + threadIdx.x) * int64_t{kOctet};
  if (channel >= p.C) {
    wait_for_inputs();
    return;
  }
  const auto* x = static_cast<const Scalar*>(p.x) + channel;
  auto* y = static_cast<Scalar*>(p.y) + channel;
  float weight[kOctet][kRunWidth];
#pragma unroll
  for (int j = 0; j < kOctet; ++j) {
    const float* from = p.weight + (channel + j) * p.weight_stride;
    const float4 four = *reinterpret_cast<const float4*>(from);
    weight[j][0] = four.x, weight[j][1] = four.y, weight[j][2] = four.z, weight[j][3] = four.w;
  }
  wait_for_inputs();
  const int64_t first = blockIdx.x / channel_blocks * kRows;
  float window[kRunWidth][kOctet];  // the row's inputs, its own last
  int64_t at = -1;                  // sequence whose inputs they are
  for (int64_t batch = first; batch < min(first + kRows, p.T); batch += kAtOnce) {
    float inputs[kAtOnce][kOctet];
    int64_t sequences[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      sequences[i] = -1;
      if (batch + i >= p.T) continue;
      sequences[i] = p.batch.row_sequences[batch + i];
      load_octet(x + (batch + i) * p.x_stride, inputs[i]);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int64_t row = batch + i, b = sequences[i];
      if (b < 0) continue;
      if (b != at) {
        const int64_t t = row - p.batch.query_start[b];
#pragma unroll
        for (int m = 1; m < kRunWidth; ++m) {
          const int64_t before = t - kRunWidth + m;
          if (before >= 0) {
            load_octet(x + (row - kRunWidth + m) * p.x_stride, window[m]);
          } else {
            load_kept(p, b, channel, before, window[m]);
          }
        }
        at = b;
      }
#pragma unroll
      for (int j = 0; j < kOctet; ++j) {
#pragma unroll
        for (int m = 1; m < kRunWidth; ++m) window[m - 1][j] = window[m][j];
        window[kRunWidth - 1][j] = inputs[i][j];
      }
      float results[kOctet];
#pragma unroll
      for (int j = 0; j < kOctet; ++j) {
        float sum = __fmul_rn(weight[j][0], window[0][j]);
#pragma unroll
        for (int m = 1; m < kRunWidth; ++m) sum = fmaf(weight[j][m], window[m][j], sum);
        results[j] = sum / (1.0f + expf(-sum));
      }
      store_octet(results, y + row * p.y_stride);
      if constexpr (kDecode) {
        const int64_t slot = p.batch.state_slots[b];
        if (slot < 0) continue;
        const auto keep = [&](float* to) {
#pragma unroll
          for (int m = 1; m < kRunWidth; ++m) {
            store_octet(window[m], to + (m - 1) * p.C + channel);
          }
        };
        for (int32_t s = p.batch.snapshot_start[b]; s < p.batch.snapshot_start[b + 1]; ++s) {
          keep(p.snapshot_windows + p.batch.snapshots[s].slot * p.snapshot_stride);
        }
        keep(p.state + slot * p.state_stride);
      }
    }
  }
}

bool has_octets(const CausalConv1dArgs& args) {
  const auto is_aligned = [](const TensorView& x) {
    return reinterpret_cast<uintptr_t>(x.data) % 16 == 0 &&
           bytes_of(x.dtype, x.row_stride) % 16 == 0;
  };
  return args.weight.shape[1] == kRunWidth && args.x.shape[1] % kOctet == 0 && is_aligned(args.x) &&
         is_aligned(args.y) && is_aligned(args.weight) && is_aligned(args.state.conv) &&
         (args.snapshots.conv.data == nullptr || is_aligned(args.snapshots.conv));
}

template <typename Scalar>
Status convolve_runs(CudaContext& context, const Params& params, bool decodes) {
  const int64_t channel_blocks = ceil_div(params.C, kRunThreads * kOctet);
  return launch(
      context, "causal_conv1d", decodes ? run_kernel<Scalar, true> : run_kernel<Scalar, false>,
      grid_of(channel_blocks * ceil_div(params.T, decodes ? 1 : kRunRows)), kRunThreads, params);
}

}  // namespace

Status causal_conv1d_cuda(CudaContext& context, const CausalConv1dArgs& args) {
  const Params params{.x = args.x.data,
                      .weight = args.weight.as<float>(),
                      .y = args.y.data,
                      .state = args.state.conv.as<float>(),
                      .snapshot_windows = args.snapshots.conv.as<float>(),
                      .x_stride = args.x.row_stride,
                      .weight_stride = args.weight.row_stride,
                      .y_stride = args.y.row_stride,
                      .state_stride = args.state.conv.row_stride,
                      .snapshot_stride = args.snapshots.conv.row_stride,
                      .T = args.x.shape[0],
                      .B = args.forward->num_sequences(),
                      .C = args.x.shape[1],
                      .W = static_cast<int>(args.weight.shape[1]),
                      .batch = args.forward->batch};
  const int64_t channel_blocks = ceil_div(params.C, kThreads);
  const bool in_runs = has_octets(args) && args.forward->tree_starts.empty();
  bool decodes = in_runs;
  for (int64_t b = 0; b < params.B && decodes; ++b) decodes = args.forward->num_rows(b) == 1;
  return with_scalar(args.x.dtype, [&](auto scalar) -> Status {
    using Scalar = typename decltype(scalar)::type;
    if (in_runs) {
      HEDDLE_RETURN_IF_ERROR(convolve_runs<Scalar>(context, params, decodes));
    } else {
      HEDDLE_RETURN_IF_ERROR(launch(context, "causal_conv1d", convolve_kernel<Scalar>,
                                    grid_of(channel_blocks * ceil_div(params.T, kRows)), kThreads,
                                    params));
    }
    if (decodes) return {};
    return launch(context, "causal_conv1d windows", keep_windows_kernel<Scalar>,
                  grid_of(channel_blocks * params.B), kThreads, params);
  });
}

}  // namespace heddle::ops
