// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/rows.cuh"
#include "ops/linear_attention/delta_step_sm90.h"
#include "ops/linear_attention/snapshot_rows.cuh"
#include "ops/linear_attention/state_rows.cuh"

namespace heddle::ops {

namespace {

constexpr int kDim = 128;  // of keys and values
constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kWindow = 3;     // inputs that the convolution keeps
constexpr int kMostHeads = 8;  // value heads of a key head: blocks of a cluster

static_assert(kWarps * StateRows::kWarpRows == kDim, "a block has all rows of a head");

struct Params {
  const CudaBf16* x;
  const float* conv_weight;  // [C, 4]
  float* windows;            // [slots, 3, C]
  float* snapshot_windows;   // likewise
  const float* a;
  const float* b;
  const float* neg_exp_a_log;
  const float* dt_bias;
  float* state;
  SnapshotMatrices snapshots;
  const CudaBf16* z;
  const float* norm_weight;
  CudaBf16* y;
  int64_t x_stride, windows_stride, snapshot_windows_stride, a_stride, b_stride, state_stride;
  int64_t z_stride, y_stride;
  int64_t C;
  int Nk, Nv;
  float epsilon;
  NormGate gate;
  DeviceBatch batch;
};

__device__ inline void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

__device__ inline void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// One channel of the convolution: its window and weights, then its input.
struct Channel {
  float inputs[kWindow + 1];
  float4 weight;

  __device__ void load_window(const Params& p, int64_t slot, int64_t channel, bool fresh) {
    const float* from = p.windows + slot * p.windows_stride + channel;
#pragma unroll
    for (int m = 0; m < kWindow; ++m) inputs[m] = fresh ? 0.0f : from[m * p.C];
    weight = reinterpret_cast<const float4*>(p.conv_weight)[channel];
  }

  // The convolved input, as the op of its own stores it.
  __device__ float convolve(CudaBf16 x) {
    inputs[kWindow] = as_float(x);
    float sum = __fmul_rn(weight.x, inputs[0]);
    sum = fmaf(weight.y, inputs[1], sum);
    sum = fmaf(weight.z, inputs[2], sum);
    sum = fmaf(weight.w, inputs[3], sum);
    return as_float(rounded<CudaBf16>(quick_silu(sum)));
  }

  __device__ void keep(float* window, int64_t C, int64_t channel) const {
#pragma unroll
    for (int m = 0; m < kWindow; ++m) window[m * C + channel] = inputs[m + 1];
  }
};

struct Shared {
  float k[kDim];  // normalised
  float q[kDim];
  float v[kDim];
  float y[kDim];
  float opening[kDim];  // of y's gate
  float norm_weight[kDim];
  float sums[3][kDim / kWarp];  // k.k, q.q and k.q of the columns of a warp
  float alpha, beta;
};

// A warp normalises a head's output and writes it, eight numbers by each of 16 lanes.
__device__ inline void write_normalised(const Params& p, const Shared& shared, CudaBf16* y,
                                        int lane) {
  const bool writes = lane < kDim / kOctet;
  float values[kOctet] = {};
  float sum = 0;
#pragma unroll
  for (int j = 0; j < kOctet; ++j) {
    if (writes) values[j] = as_float(rounded<CudaBf16>(shared.y[lane * kOctet + j]));
    sum = fmaf(values[j], values[j], sum);
  }
  const float scale = 1.0f / sqrtf(warp_sum(sum) / static_cast<float>(kDim) + p.epsilon);
  if (!writes) return;
#pragma unroll
  for (int j = 0; j < kOctet; ++j) {
    const int column = lane * kOctet + j;
    values[j] = values[j] * scale * shared.norm_weight[column] * shared.opening[column];
  }
  store_octet(values, y + lane * kOctet);
}

// The first half of the threads has a column of q and one of k each, the second one of v.
__global__ void __launch_bounds__(kThreads, 2) delta_step_kernel(const __grid_constant__ Params p) {
  __shared__ Shared shared;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int64_t b = blockIdx.x / p.Nv;
  const int h = static_cast<int>(blockIdx.x) % p.Nv;
  const int key_head = h * p.Nk / p.Nv;
  const bool keeps_keys = h % (p.Nv / p.Nk) == 0;  // of the cluster
  const int64_t slot = p.batch.state_slots[b];
  if (slot < 0) {  // padding, as all of its cluster
    wait_for_inputs();
    return;
  }
  const int64_t row = p.batch.query_start[b];
  const bool fresh = p.batch.context_lens[b] == 0;

  const bool has_keys = thread < kDim;
  const int column = thread % kDim;
  const int64_t q_channel = key_head * kDim + column;
  const int64_t k_channel = p.Nk * kDim + q_channel;
  const int64_t v_channel = 2 * p.Nk * kDim + h * kDim + column;
  Channel first, second;  // q and k, or v alone
  first.load_window(p, slot, has_keys ? q_channel : v_channel, fresh);
  if (has_keys) second.load_window(p, slot, k_channel, fresh);
  const StateRows rows(lane, warp);
  float* state = p.state + slot * p.state_stride + (int64_t{h} * kDim + rows.first) * kDim;
  StateRows::Numbers s;
  rows.load(state, fresh, s);
  const float norm_weight = has_keys ? 0.0f : p.norm_weight[column];
  const float dt_bias = p.dt_bias[h];
  const float neg_exp_a_log = p.neg_exp_a_log[h];
  wait_for_inputs();

  const CudaBf16* x = p.x + row * p.x_stride;
  const float a_in = thread == kDim ? p.a[row * p.a_stride + h] : 0.0f;
  const float b_in = thread == kDim ? p.b[row * p.b_stride + h] : 0.0f;
  const float z = has_keys ? 0.0f : as_float(p.z[row * p.z_stride + h * kDim + column]);
  cluster_arrive();  // the window of the key head has been read
  float q = 0;
  float k = 0;
  if (has_keys) {
    q = first.convolve(x[q_channel]);
    k = second.convolve(x[k_channel]);
    const float kk = warp_sum(k * k), qq = warp_sum(q * q), kq = warp_sum(k * q);
    if (lane == 0) {
      shared.sums[0][warp] = kk;
      shared.sums[1][warp] = qq;
      shared.sums[2][warp] = kq;
    }
  } else {
    shared.v[column] = first.convolve(x[v_channel]);
    const float opened = p.gate == NormGate::kSigmoid ? 1.0f : z;
    shared.opening[column] = opened / (1.0f + expf(-z));
    shared.norm_weight[column] = norm_weight;
  }
  if (thread == kDim) {
    const float decay = a_in + dt_bias;
    shared.alpha = expf(neg_exp_a_log * (decay > 20.0f ? decay : log1pf(expf(decay))));
    shared.beta = 1.0f / (1.0f + expf(-b_in));
  }
  __syncthreads();
  const auto total = [&](int i) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kDim / kWarp; ++w) sum += shared.sums[i][w];
    return sum;
  };
  const float k_factor = 1.0f / sqrtf(total(0) + 1e-6f);
  const float q_factor = 1.0f / sqrtf(static_cast<float>(kDim)) / sqrtf(total(1) + 1e-6f);
  if (has_keys) {
    shared.k[column] = k * k_factor;
    shared.q[column] = q * q_factor;
  }
  __syncthreads();
  rows.advance({.k = shared.k,
                .q = shared.q,
                .v = shared.v,
                .alpha = shared.alpha,
                .beta = shared.beta,
                .kq = total(2) * k_factor * q_factor},
               s, shared.y);
  rows.store(state, s);
  const StateSnapshot* const snapshots = p.batch.snapshots;
  const int32_t first_snapshot = p.batch.snapshot_start[b], end = p.batch.snapshot_start[b + 1];
  for (int32_t i = first_snapshot; i < end; ++i) {
    rows.store_snapshot(p.snapshots, snapshots[i].slot, int64_t{h} * kDim, s);
  }
  __syncthreads();
  if (warp == 0) write_normalised(p, shared, p.y + row * p.y_stride + h * kDim, lane);
  __syncwarp();  // whose lanes wait together
  cluster_wait();
  const auto keep_windows = [&](float* window) {
    if (!has_keys) {
      first.keep(window, p.C, v_channel);
    } else if (keeps_keys) {
      first.keep(window, p.C, q_channel);
      second.keep(window, p.C, k_channel);
    }
  };
  keep_windows(p.windows + slot * p.windows_stride);
  for (int32_t i = first_snapshot; i < end; ++i) {
    keep_windows(p.snapshot_windows + snapshots[i].slot * p.snapshot_windows_stride);
  }
}

bool is_aligned(const TensorView& x) { return reinterpret_cast<uintptr_t>(x.data) % 16 == 0; }

}  // namespace

bool delta_step_fits(const CudaContext& context, const DeltaStepArgs& args) {
  const ForwardContext& forward = *args.conv.forward;
  const int64_t Nk = args.rule.num_key_heads, Nv = args.rule.b.shape[1];
  const int64_t at_once = int64_t{2} * context.gpu.properties().num_multiprocessors;
  return context.gpu.properties().major == 9 && !context.exact && forward.few_rows_each() == 1 &&
         forward.num_sequences() * Nv <= at_once && args.conv.x.dtype == DType::kBf16 &&
         args.conv.weight.shape[1] == kWindow + 1 && args.conv.weight.dense() &&
         is_aligned(args.conv.weight) && args.rule.key_dim == kDim && args.rule.value_dim == kDim &&
         Nv / Nk <= kMostHeads && args.rule.a.shape[1] == Nv &&
         args.rule.state.recurrent.row_stride % 4 == 0 && is_aligned(args.rule.state.recurrent) &&
         is_aligned(args.norm.weight) && args.norm.weight.shape[0] == kDim &&
         rows_are_aligned(args.norm.z) && rows_are_aligned(args.norm.y);
}

Status delta_step_cuda(CudaContext& context, const DeltaStepArgs& args) {
  const MutableTensorView& snapshots = args.rule.snapshots.recurrent;
  const int64_t Nv = args.rule.b.shape[1];
  const Params params{.x = args.conv.x.as<CudaBf16>(),
                      .conv_weight = args.conv.weight.as<float>(),
                      .windows = args.conv.state.conv.as<float>(),
                      .snapshot_windows = args.conv.snapshots.conv.as<float>(),
                      .a = args.rule.a.as<float>(),
                      .b = args.rule.b.as<float>(),
                      .neg_exp_a_log = args.rule.neg_exp_a_log.as<float>(),
                      .dt_bias = args.rule.dt_bias.as<float>(),
                      .state = args.rule.state.recurrent.as<float>(),
                      .snapshots = {.data = snapshots.data,
                                    .scales = args.rule.snapshots.scales.as<float>(),
                                    .slot_stride = snapshots.row_stride,
                                    .scale_stride = args.rule.snapshots.scales.row_stride,
                                    .Dk = kDim,
                                    .dtype = snapshots.dtype},
                      .z = args.norm.z.as<CudaBf16>(),
                      .norm_weight = args.norm.weight.as<float>(),
                      .y = args.norm.y.as<CudaBf16>(),
                      .x_stride = args.conv.x.row_stride,
                      .windows_stride = args.conv.state.conv.row_stride,
                      .snapshot_windows_stride = args.conv.snapshots.conv.row_stride,
                      .a_stride = args.rule.a.row_stride,
                      .b_stride = args.rule.b.row_stride,
                      .state_stride = args.rule.state.recurrent.row_stride,
                      .z_stride = args.norm.z.row_stride,
                      .y_stride = args.norm.y.row_stride,
                      .C = args.conv.x.shape[1],
                      .Nk = static_cast<int>(args.rule.num_key_heads),
                      .Nv = static_cast<int>(Nv),
                      .epsilon = args.norm.epsilon,
                      .gate = args.norm.gate,
                      .batch = args.conv.forward->batch};
  return launch(context, "delta_step", delta_step_kernel,
                grid_of(args.conv.forward->num_sequences() * Nv), kThreads, params, 0,
                static_cast<unsigned>(Nv / args.rule.num_key_heads));
}

}  // namespace heddle::ops
