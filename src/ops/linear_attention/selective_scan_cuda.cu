// SPDX-License-Identifier: Apache-2.0
// The selective scan: h <- exp(dt A) h + dt x B, y = (C h + skip x) silu(z), channel by channel.
// A thread computes a channel of a sequence, with its N state numbers and its row of A in
// registers; a block has kThreads neighbouring channels and keeps B and C of kTokens tokens in
// shared memory. Bytes: x, dt, z and y once, 8 C N a state; T C N exponentials, which bound
// prefill, where tokens depend on each other. Decode reads and writes the state once:
// bandwidth-bound. Used in both modes, for any N up to 64: there are kernels for 16, 32 and 64.
#include "ops/cuda/draft_tree.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/linear_attention/selective_scan.h"
#include "ops/linear_attention/snapshot_rows.cuh"

namespace heddle::ops {

namespace {

struct Params {
  const void* x;
  const float* dt;
  const void* b;
  const void* c;
  const void* z;
  const float* decay;  // decay rates [C, N]
  const float* dt_bias;
  const float* skip;
  void* y;
  float* state;  // states [slots, C, N]
  SnapshotMatrices snapshots;
  int64_t x_stride, dt_stride, b_stride, c_stride, z_stride, y_stride, state_stride, decay_stride;
  int64_t B, C;
  int N;
  DeviceBatch batch;
};

constexpr int kThreads = 128;
constexpr int kTokens = 16;  // tokens whose B and C a block keeps in shared memory

// Stores the numbers of a channel in the format of snapshots; the channel's own thread does it.
template <int kStates>
__device__ void store_snapshot(const Params& p, int64_t slot, int64_t channel,
                               const float (&h)[kStates]) {
  RowScale scale;
  if (p.snapshots.dtype == DType::kI8) {
    float largest = 0;
    bool finite = true;
#pragma unroll
    for (int n = 0; n < kStates; ++n) {
      if (n >= p.N) continue;
      largest = fmaxf(largest, fabsf(h[n]));
      finite = finite && isfinite(h[n]);
    }
    scale = scale_of(largest, finite);
    p.snapshots.scales[slot * p.snapshots.scale_stride + channel] = scale.scale;
  }
  const int64_t number = p.snapshots.number_of(slot, channel);
#pragma unroll
  for (int n = 0; n < kStates; ++n) {
    if (n < p.N) store_snapshot_number(p.snapshots, number + n, h[n], scale);
  }
}

// A thread computes a channel through all tokens of its sequence. The sum runs over ascending n,
// and the state is always stored in fp32: the bits are the same for any chunking and batch.
template <int kStates, typename Scalar>
__global__ void __launch_bounds__(kThreads) scan_channels_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ float shared_b[kTokens][kStates], shared_c[kTokens][kStates];
  const int64_t channel_blocks = ceil_div(p.C, kThreads);
  const int64_t sequence = blockIdx.x / channel_blocks;
  const int64_t channel = blockIdx.x % channel_blocks * kThreads + threadIdx.x;
  const int64_t slot = p.batch.state_slots[sequence];
  if (slot < 0) return;  // the sequence is padding
  const bool is_there = channel < p.C;
  const int64_t first_row = p.batch.query_start[sequence];
  const int64_t num_rows = p.batch.query_start[sequence + 1] - first_row;
  const int64_t num_chain = num_chain_rows(p.batch, sequence, num_rows);
  const bool fresh = p.batch.context_lens[sequence] == 0;
  float* const states = p.state + slot * p.state_stride + channel * p.N;
  float h[kStates], decay[kStates];
  const auto load_state = [&](int64_t behind) {
#pragma unroll
    for (int n = 0; n < kStates; ++n) {
      if (n < p.N) h[n] = states[behind * p.state_stride + n];
    }
  };
  const auto store_state = [&](int64_t behind) {
#pragma unroll
    for (int n = 0; n < kStates; ++n) {
      if (n < p.N) states[behind * p.state_stride + n] = h[n];
    }
  };
#pragma unroll
  for (int n = 0; n < kStates; ++n) {
    h[n] = 0;
    decay[n] = is_there && n < p.N ? p.decay[channel * p.decay_stride + n] : 0.0f;
  }
  if (is_there && !fresh) load_state(0);
  const float dt_bias = is_there ? p.dt_bias[channel] : 0.0f;
  const float skip = is_there ? p.skip[channel] : 0.0f;
  int32_t snapshot = p.batch.snapshot_start[sequence];
  const int32_t snapshots_end = p.batch.snapshot_start[sequence + 1];

  for (int64_t group = 0; group < num_rows; group += kTokens) {
    const int count = static_cast<int>(min(static_cast<int64_t>(kTokens), num_rows - group));
    __syncthreads();  // all threads have used the previous tokens
    for (int i = threadIdx.x; i < count * p.N; i += kThreads) {
      const int64_t row = first_row + group + i / p.N;
      const int n = i % p.N;
      shared_b[i / p.N][n] = as_float(static_cast<const Scalar*>(p.b)[row * p.b_stride + n]);
      shared_c[i / p.N][n] = as_float(static_cast<const Scalar*>(p.c)[row * p.c_stride + n]);
    }
    __syncthreads();
    for (int t = 0; is_there && t < count; ++t) {
      const int64_t row = first_row + group + t;
      // Index of the row's tree node; negative: the row precedes the tree.
      const int64_t node = group + t - num_chain;
      if (node == 0) store_state(0);
      if (node >= 0) load_state(parent_row(p.batch, sequence, group + t) - num_chain + 1);
      const float x = as_float(static_cast<const Scalar*>(p.x)[row * p.x_stride + channel]);
      const float z = as_float(static_cast<const Scalar*>(p.z)[row * p.z_stride + channel]);
      const float raw = __fadd_rn(p.dt[row * p.dt_stride + channel], dt_bias);
      const float dt = raw > 20.0f ? raw : log1pf(expf(raw));
      const float input = __fmul_rn(dt, x);
      float sum = __fmul_rn(skip, x);
#pragma unroll
      for (int n = 0; n < kStates; ++n) {
        if (n >= p.N) continue;
        h[n] = fmaf(expf(__fmul_rn(dt, decay[n])), h[n], __fmul_rn(input, shared_b[t][n]));
        sum = fmaf(h[n], shared_c[t][n], sum);
      }
      static_cast<Scalar*>(p.y)[row * p.y_stride + channel] =
          rounded<Scalar>(__fmul_rn(sum, __fdiv_rn(z, 1.0f + expf(-z))));
      if (node >= 0) store_state(node + 1);
      while (snapshot < snapshots_end && p.batch.snapshots[snapshot].num_tokens == group + t + 1) {
        store_snapshot(p, p.batch.snapshots[snapshot++].slot, channel, h);
      }
    }
  }
  if (is_there && num_chain == num_rows) store_state(0);
}

template <typename Scalar>
Status launch_scan(CudaContext& context, const Params& params) {
  const auto kernel = params.N <= 16   ? scan_channels_kernel<16, Scalar>
                      : params.N <= 32 ? scan_channels_kernel<32, Scalar>
                                       : scan_channels_kernel<64, Scalar>;
  return launch(context, "selective_scan", kernel, grid_of(params.B * ceil_div(params.C, kThreads)),
                kThreads, params);
}

}  // namespace

Status selective_scan_cuda(CudaContext& context, const SelectiveScanArgs& args) {
  const MutableTensorView& snapshots = args.snapshots.recurrent;
  const Params params{.x = args.x.data,
                      .dt = args.dt.as<float>(),
                      .b = args.b.data,
                      .c = args.c.data,
                      .z = args.z.data,
                      .decay = args.neg_exp_a_log.as<float>(),
                      .dt_bias = args.dt_bias.as<float>(),
                      .skip = args.skip.as<float>(),
                      .y = args.y.data,
                      .state = args.state.recurrent.as<float>(),
                      .snapshots = {.data = snapshots.data,
                                    .scales = args.snapshots.scales.as<float>(),
                                    .slot_stride = snapshots.row_stride,
                                    .scale_stride = args.snapshots.scales.row_stride,
                                    .Dk = args.b.shape[1],
                                    .dtype = snapshots.dtype},
                      .x_stride = args.x.row_stride,
                      .dt_stride = args.dt.row_stride,
                      .b_stride = args.b.row_stride,
                      .c_stride = args.c.row_stride,
                      .z_stride = args.z.row_stride,
                      .y_stride = args.y.row_stride,
                      .state_stride = args.state.recurrent.row_stride,
                      .decay_stride = args.neg_exp_a_log.row_stride,
                      .B = args.forward->num_sequences(),
                      .C = args.x.shape[1],
                      .N = static_cast<int>(args.b.shape[1]),
                      .batch = args.forward->batch};
  return with_scalar(args.x.dtype, [&](auto scalar) -> Status {
    return launch_scan<typename decltype(scalar)::type>(context, params);
  });
}

}  // namespace heddle::ops
