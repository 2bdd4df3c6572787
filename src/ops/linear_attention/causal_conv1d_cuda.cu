// SPDX-License-Identifier: Apache-2.0
// y[t, c] = silu(sum over m < W of weight[c, m] u[t - (W - 1) + m, c] + bias[c]), or the sum
// itself; then the last W - 1 inputs (the window) are stored. convolve_kernel: a thread computes a
// channel of 8 rows. run_kernel: 8 channels of 32 rows, their window in registers. decode_kernel: 8
// channels of one row, and their windows. keep_windows_kernel: a thread writes a channel of
// windows; a block has a sequence, or a share of the snapshots. Bytes: x and y once, 8 * (W - 1) *
// C a window; 2 * W operations and a SiLU a number: bandwidth-bound. decode_kernel is used if each
// sequence has one row, run_kernel for other steps without trees, both with W = 4 and 16-byte
// aligned rows; convolve_kernel for the rest. The bits are the same.
#include <algorithm>

#include "ops/cuda/draft_tree.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/cuda/warp_matrix.cuh"
#include "ops/linear_attention/causal_conv1d.h"

namespace heddle::ops {

namespace {

struct Params {
  const void* x;
  const float* weight;
  const float* bias;  // [C]; null: no bias
  void* y;
  float* state;             // windows of the state slots [slots, W - 1, C]
  float* snapshot_windows;  // windows of snapshots, laid out like `state`
  int64_t x_stride, weight_stride, y_stride, state_stride, snapshot_stride;
  int64_t T, B, C;
  int W;
  bool silu;
  DeviceBatch batch;
};

constexpr int kThreads = 128;
constexpr int kRows = 8;      // rows that a block convolves
constexpr int kMaxWidth = 8;  // largest width W of the convolution

// Row `t` of a sequence's inputs in one channel; t = -1 is the last input before the step.
template <typename Scalar>
struct ChannelInputs {
  const Scalar* x;  // input of the sequence's first row in the step
  int64_t stride;
  const float* state;  // null: the sequence has no earlier inputs, which count as zeros
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

// Loads the `count` inputs of a sequence that end with row `t`, oldest first.
__device__ void last_rows(const Params& p, int64_t b, int64_t t, int count,
                          int64_t (&rows)[kMaxWidth]) {
#pragma unroll
  for (int m = kMaxWidth - 1; m >= 0; --m) {
    if (m >= count) continue;
    rows[m] = t;
    t = t < 0 ? t - 1 : parent_row(p.batch, b, t);
  }
}

__device__ inline float activated(const Params& p, float sum) {
  return p.silu ? quick_silu(sum) : sum;
}

// A thread convolves one channel of kRows rows; the W inputs of a row come from the cache except
// for the first use. Reads x and writes y once and does 2 * W operations and a SiLU for each of T *
// C numbers: bandwidth-bound. The sum runs over ascending inputs.
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
    if (p.bias != nullptr) sum = __fadd_rn(sum, p.bias[channel]);
    static_cast<Scalar*>(p.y)[row * p.y_stride + channel] = rounded<Scalar>(activated(p, sum));
  }
}

// Stores the windows after the convolution: a thread writes one channel of windows. The first B
// blocks of every group of channels have a sequence each. They write the snapshots that need inputs
// from the slot's old window, the nodes of its tree, then the working slot, oldest row first,
// because the window moves within the slot. The blocks after them share all other snapshots. Reads
// and writes 8 * (W - 1) * C bytes for each window.
template <typename Scalar>
__global__ void __launch_bounds__(kThreads) keep_windows_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const int64_t channel_blocks = ceil_div(p.C, kThreads);
  const int64_t channel = blockIdx.x % channel_blocks * kThreads + threadIdx.x;
  const int64_t part = blockIdx.x / channel_blocks;
  if (channel >= p.C) return;
  const auto keep = [&](const ChannelInputs<Scalar>& inputs, int64_t b, int64_t num_tokens,
                        float* to) {
    int64_t rows[kMaxWidth];
    last_rows(p, b, num_tokens - 1, p.W - 1, rows);
#pragma unroll
    for (int m = 0; m < kMaxWidth - 1; ++m) {
      if (m < p.W - 1) to[m * p.C + channel] = inputs.at(rows[m]);
    }
  };
  const auto keep_snapshot = [&](const StateSnapshot& snapshot) {
    keep(ChannelInputs<Scalar>(p, snapshot.sequence, channel), snapshot.sequence,
         snapshot.num_tokens, p.snapshot_windows + snapshot.slot * p.snapshot_stride);
  };
  const auto reaches_slot = [&p](const StateSnapshot& snapshot) {
    return snapshot.num_tokens < p.W - 1;
  };
  if (part >= p.B) {
    const int64_t stride = gridDim.x / channel_blocks - p.B;
    for (int64_t i = part - p.B; i < p.batch.snapshot_start[p.B]; i += stride) {
      const StateSnapshot snapshot = p.batch.snapshots[i];
      if (!reaches_slot(snapshot) && p.batch.state_slots[snapshot.sequence] >= 0) {
        keep_snapshot(snapshot);
      }
    }
    return;
  }
  const int64_t b = part;
  const int64_t slot = p.batch.state_slots[b];
  if (slot < 0) return;
  for (int32_t i = p.batch.snapshot_start[b]; i < p.batch.snapshot_start[b + 1]; ++i) {
    const StateSnapshot snapshot = p.batch.snapshots[i];
    if (!reaches_slot(snapshot)) break;  // later snapshots do not need it, either
    keep_snapshot(snapshot);
  }
  const ChannelInputs<Scalar> inputs(p, b, channel);
  const int64_t num_rows = p.batch.query_start[b + 1] - p.batch.query_start[b];
  const int64_t num_chain = num_chain_rows(p.batch, b, num_rows);
  for (int64_t t = num_chain; t < num_rows; ++t) {
    keep(inputs, b, t + 1, p.state + (slot + 1 + t - num_chain) * p.state_stride);
  }
  keep(inputs, b, num_chain, p.state + slot * p.state_stride);
}

constexpr int kRunThreads = 64;
constexpr int kRunRows = 32;  // rows that a thread convolves
constexpr int kRunWidth = 4;  // width W of the convolution that run_kernel supports

// Loads eight neighbouring channels of input `t` of a sequence from before the step.
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

// Eight neighbouring channels of a row in their stored dtype.
template <typename Scalar>
struct alignas(16) Octet {
  Scalar channels[kOctet];
};

// The rows that a thread convolves, loaded kAtOnce at a time. kAhead such groups are in flight, in
// shared memory, so that they need no registers. A thread reads only the rows that it has loaded.
template <typename Scalar>
class RowsAhead {
 public:
  static constexpr int kAtOnce = 4, kAhead = 4;

  // Memory for all threads of a block.
  struct Shared {
    Octet<Scalar> rows[kAhead][kAtOnce][kRunThreads];
  };

  // `x` points to the first of `count` rows.
  __device__ RowsAhead(Shared& shared, const Scalar* x, int64_t stride, int count)
      : shared_(shared), next_(x), stride_(stride), left_(count) {
    for (int i = 0; i < kAhead; ++i) ask();
  }

  // Returns the next group of rows; the earlier groups must have been used.
  __device__ void take(Octet<Scalar> (&rows)[kAtOnce]) {
    wait_copies<kAhead - 1>();
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) rows[i] = shared_.rows[taken_][i][threadIdx.x];
    taken_ = (taken_ + 1) % kAhead;
  }

  // Starts to load the group that replaces the one just used.
  __device__ void ask() {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i >= left_) break;
      Octet<Scalar>& to = shared_.rows[place_][i][threadIdx.x];
#pragma unroll
      for (int at = 0; at < kOctet; at += 16 / static_cast<int>(sizeof(Scalar))) {
        copy_async(&to.channels[at], next_ + at, true);
      }
      next_ += stride_;
    }
    commit_copies();
    left_ -= kAtOnce;
    place_ = (place_ + 1) % kAhead;
  }

 private:
  Shared& shared_;
  const Scalar* next_;
  const int64_t stride_;
  int left_;
  int place_ = 0, taken_ = 0;
};

// Convolves eight channels of a sequence's rows, one row after the other.
template <typename Scalar>
struct RunningWindow {
  float weight[kOctet][kRunWidth];
  float inputs[kRunWidth][kOctet];  // the inputs of a row, oldest first
  int64_t b = -1;                   // index of the current sequence in the batch

  __device__ void load_weights(const Params& p, int64_t channel) {
#pragma unroll
    for (int j = 0; j < kOctet; ++j) {
      const float* from = p.weight + (channel + j) * p.weight_stride;
      const float4 four = *reinterpret_cast<const float4*>(from);
      weight[j][0] = four.x, weight[j][1] = four.y, weight[j][2] = four.z, weight[j][3] = four.w;
    }
  }

  // Moves on to `row` of sequence `sequence`, whose inputs are `own`. `x` points to row 0 of these
  // channels.
  __device__ void advance(const Params& p, const Scalar* x, int64_t channel, int64_t row,
                          int64_t sequence, const Octet<Scalar>& own) {
    if (sequence != b) {
      b = sequence;
      const int64_t t = row - p.batch.query_start[b];
#pragma unroll
      for (int m = 1; m < kRunWidth; ++m) {
        const int64_t before = t - kRunWidth + m;
        if (before >= 0) {
          load_octet(x + (row - kRunWidth + m) * p.x_stride, inputs[m]);
        } else {
          load_kept(p, b, channel, before, inputs[m]);
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kOctet; ++j) {
#pragma unroll
      for (int m = 1; m < kRunWidth; ++m) inputs[m - 1][j] = inputs[m][j];
      inputs[kRunWidth - 1][j] = as_float(own.channels[j]);
    }
  }

  // `bias` is that of these channels, or null.
  __device__ void convolve(const Params& p, const float* bias, Scalar* y) const {
    float results[kOctet];
#pragma unroll
    for (int j = 0; j < kOctet; ++j) {
      float sum = __fmul_rn(weight[j][0], inputs[0][j]);
#pragma unroll
      for (int m = 1; m < kRunWidth; ++m) sum = fmaf(weight[j][m], inputs[m][j], sum);
      if (bias != nullptr) sum = __fadd_rn(sum, bias[j]);
      results[j] = activated(p, sum);
    }
    store_octet(results, y);
  }

  // Writes the last inputs, this row's included, which are the window of the next row.
  __device__ void keep(float* to, int64_t C) const {
#pragma unroll
    for (int m = 1; m < kRunWidth; ++m) store_octet(inputs[m], to + (m - 1) * C);
  }
};

// The same convolution for W = 4 and whole octets of channels: a thread computes eight channels of
// kRunRows rows with the window in registers, so that every input is loaded once. Operations and
// their order are those of convolve_kernel(). Measured on an H200 for 8,192 rows of 8,192 bf16
// channels: 86 us with the windows stored afterwards; their bytes take 64. Issue slots are half
// used, and 117 registers a thread leave 16 warps to a multiprocessor: with more warps of fewer
// registers it was not faster.
template <typename Scalar>
__global__ void __launch_bounds__(kRunThreads) run_kernel(const __grid_constant__ Params p) {
  using Rows = RowsAhead<Scalar>;
  __shared__ typename Rows::Shared shared;
  const int64_t channel_blocks = ceil_div(p.C, kRunThreads * kOctet);
  const int64_t channel =
      (blockIdx.x % channel_blocks * kRunThreads + threadIdx.x) * int64_t{kOctet};
  if (channel >= p.C) {
    wait_for_inputs();
    return;
  }
  const auto* x = static_cast<const Scalar*>(p.x) + channel;
  auto* y = static_cast<Scalar*>(p.y) + channel;
  const float* bias = p.bias == nullptr ? nullptr : p.bias + channel;
  RunningWindow<Scalar> window;
  window.load_weights(p, channel);
  wait_for_inputs();
  const int64_t first = blockIdx.x / channel_blocks * kRunRows;
  const int64_t end = min(first + kRunRows, p.T);
  const int count = static_cast<int>(end - first);
  Rows rows(shared, x + first * p.x_stride, p.x_stride, count);
  const int32_t* const row_sequences = p.batch.row_sequences + first;
  y += first * p.y_stride;
  for (int group = 0; group < count; group += Rows::kAtOnce) {
    int32_t sequences[Rows::kAtOnce];
#pragma unroll
    for (int i = 0; i < Rows::kAtOnce; ++i) {
      sequences[i] = group + i < count ? row_sequences[group + i] : -1;
    }
    Octet<Scalar> own[Rows::kAtOnce];
    rows.take(own);
#pragma unroll
    for (int i = 0; i < Rows::kAtOnce; ++i) {
      if (sequences[i] >= 0) {
        window.advance(p, x, channel, first + group + i, sequences[i], own[i]);
        window.convolve(p, bias, y);
      }
      y += p.y_stride;
    }
    rows.ask();
  }
}

// For a step in which no sequence has more than one row: a thread computes eight channels of a row
// and stores their windows.
template <typename Scalar>
__global__ void __launch_bounds__(kRunThreads) decode_kernel(const __grid_constant__ Params p) {
  const int64_t channel_blocks = ceil_div(p.C, kRunThreads * kOctet);
  const int64_t channel =
      (blockIdx.x % channel_blocks * kRunThreads + threadIdx.x) * int64_t{kOctet};
  if (channel >= p.C) {
    wait_for_inputs();
    return;
  }
  RunningWindow<Scalar> window;
  window.load_weights(p, channel);
  wait_for_inputs();
  const int64_t row = blockIdx.x / channel_blocks;
  const int64_t b = p.batch.row_sequences[row];
  if (b < 0) return;
  const auto* x = static_cast<const Scalar*>(p.x) + channel;
  window.advance(p, x, channel, row, b,
                 *reinterpret_cast<const Octet<Scalar>*>(x + row * p.x_stride));
  window.convolve(p, p.bias == nullptr ? nullptr : p.bias + channel,
                  static_cast<Scalar*>(p.y) + channel + row * p.y_stride);
  const int64_t slot = p.batch.state_slots[b];
  if (slot < 0) return;
  for (int32_t s = p.batch.snapshot_start[b]; s < p.batch.snapshot_start[b + 1]; ++s) {
    window.keep(p.snapshot_windows + p.batch.snapshots[s].slot * p.snapshot_stride + channel, p.C);
  }
  window.keep(p.state + slot * p.state_stride + channel, p.C);
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
  const auto kernel = decodes ? decode_kernel<Scalar> : run_kernel<Scalar>;
  const int64_t row_blocks = decodes ? params.T : ceil_div(params.T, kRunRows);
  return launch(context, "causal_conv1d", kernel, grid_of(channel_blocks * row_blocks), kRunThreads,
                params);
}

}  // namespace

Status causal_conv1d_cuda(CudaContext& context, const CausalConv1dArgs& args) {
  const Params params{.x = args.x.data,
                      .weight = args.weight.as<float>(),
                      .bias = args.bias.as<float>(),
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
                      .silu = args.silu,
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
    constexpr int64_t kRowsOfBlock = 256,
                      // Most blocks that write snapshots, for each group of channels.
        kMostBlocks = 32;
    const int64_t sharing = std::clamp<int64_t>(params.T / kRowsOfBlock, 1, kMostBlocks);
    return launch(context, "causal_conv1d windows", keep_windows_kernel<Scalar>,
                  grid_of(channel_blocks * (params.B + sharing)), kThreads, params);
  });
}

}  // namespace heddle::ops
