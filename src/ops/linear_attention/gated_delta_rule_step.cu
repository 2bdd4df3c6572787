// SPDX-License-Identifier: Apache-2.0
// With p = S' k and o = S' q:
//   d = beta (v - alpha p)    y = alpha o + d (k.q)    S <- alpha S + k d'
// A block computes 64 value rows of one head of one sequence through its tokens; a warp has 16 of
// them, eight lanes a row (state_rows.cuh); a thread prepares one column of k and q. Bytes: 8 * Dk
// * Dv a head and sequence, the state read once and written once: bound by memory. Used in fast
// mode for sequences of up to 8 rows without trees: bf16, Dk = 128, Dv a multiple of 64, one decay
// a head. On Hopper delta_step_sm90.cu computes steps of few such sequences instead.
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/linear_attention/gated_delta_rule_step.h"
#include "ops/linear_attention/state_rows.cuh"

namespace heddle::ops {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
using Rows = StateRows<4>;
constexpr int kDim = Rows::kDim;                 // Dk, channels of a key head
constexpr int kRows = kWarps * Rows::kWarpRows;  // value rows of a block

static_assert(kThreads == kDim, "a thread has one column of k and q");

struct Params {
  const CudaBf16* qkv;
  const float* a;
  const float* b;
  const float* neg_exp_a_log;
  const float* dt_bias;
  CudaBf16* y;
  float* state;
  SnapshotMatrices snapshots;
  int64_t qkv_stride, a_stride, b_stride, y_stride, state_stride;
  int64_t Nk, Nv, Dv;
  DeviceBatch batch;
};

// A prepared token: the values that all rows of a head read.
struct Token {
  float k[kDim];  // normalised key
  float q[kDim];
  float v[kRows];
  float y[kRows];
  float sums[3][kWarps];  // k.k, q.q and k.q over the columns of each warp
  float alpha, beta;
};

// The block's threads prepare row `row` of the step for value head h; returns k.q.
__device__ inline float prepare(const Params& p, int64_t row, int64_t h, int64_t first_row,
                                Token& token) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const CudaBf16* qkv = p.qkv + row * p.qkv_stride;
  const int64_t key_head = h * p.Nk / p.Nv;
  const float q = as_float(qkv[key_head * kDim + thread]);
  const float k = as_float(qkv[(p.Nk + key_head) * kDim + thread]);
  if (thread < kRows) {
    token.v[thread] = as_float(qkv[2 * p.Nk * kDim + h * p.Dv + first_row + thread]);
  }
  if (thread == kRows) {
    const float x = p.a[row * p.a_stride + h] + p.dt_bias[h];
    token.alpha = expf(p.neg_exp_a_log[h] * (x > 20.0f ? x : log1pf(expf(x))));
    token.beta = 1.0f / (1.0f + expf(-p.b[row * p.b_stride + h]));
  }
  const float kk = warp_sum(k * k), qq = warp_sum(q * q), kq = warp_sum(k * q);
  if (lane == 0) {
    token.sums[0][warp] = kk;
    token.sums[1][warp] = qq;
    token.sums[2][warp] = kq;
  }
  __syncthreads();
  const auto total = [&](int i) {
    float sum = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sum += token.sums[i][w];
    return sum;
  };
  const float k_factor = 1.0f / sqrtf(total(0) + 1e-6f);
  const float q_factor = 1.0f / sqrtf(static_cast<float>(kDim)) / sqrtf(total(1) + 1e-6f);
  token.k[thread] = k * k_factor;
  token.q[thread] = q * q_factor;
  __syncthreads();
  return total(2) * k_factor * q_factor;
}

// A block computes 64 value rows of one head of one sequence through its tokens. It loads the state
// while the previous kernel still runs, which must not write states (gated_delta_rule_step.h).
__global__ void __launch_bounds__(kThreads, 4) step_kernel(const __grid_constant__ Params p) {
  __shared__ Token token;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int64_t slabs = p.Dv / kRows;
  const int64_t first_row = blockIdx.x % slabs * kRows;
  const int64_t h = blockIdx.x / slabs % p.Nv, b = blockIdx.x / slabs / p.Nv;
  const int64_t slot = p.batch.state_slots[b];
  const int first_token = p.batch.query_start[b];
  const int num_tokens = p.batch.query_start[b + 1] - first_token;
  // padding, or a prompt, which another kernel computes.
  if (slot < 0 || num_tokens == 0 || num_tokens > kStepMostTokens) {
    wait_for_inputs();
    return;
  }
  const bool fresh = p.batch.context_lens[b] == 0;

  const Rows rows(lane, warp);
  float* state = p.state + slot * p.state_stride + (h * p.Dv + first_row + rows.first) * kDim;
  Rows::Numbers s;
  rows.load(state, fresh, s);
  wait_for_inputs();
  int32_t snapshot = p.batch.snapshot_start[b];
  const int32_t snapshots_end = p.batch.snapshot_start[b + 1];
  for (int t = 0; t < num_tokens; ++t) {
    const float kq = prepare(p, first_token + t, h, first_row, token);
    rows.advance({.k = token.k,
                  .q = token.q,
                  .v = token.v,
                  .alpha = token.alpha,
                  .beta = token.beta,
                  .kq = kq},
                 s, token.y);
    __syncthreads();
    if (thread < kRows / 2) {
      const __nv_bfloat162 pair =
          __floats2bfloat162_rn(token.y[2 * thread], token.y[2 * thread + 1]);
      *reinterpret_cast<__nv_bfloat162*>(p.y + int64_t{first_token + t} * p.y_stride + h * p.Dv +
                                         first_row + 2 * thread) = pair;
    }
    while (snapshot < snapshots_end && p.batch.snapshots[snapshot].num_tokens == t + 1) {
      const int64_t to = p.batch.snapshots[snapshot++].slot;
      rows.store_snapshot(p.snapshots, to, h * p.Dv + first_row, s);
    }
  }
  rows.store(state, s);
}

}  // namespace

bool gated_delta_rule_step_fits(const CudaContext& context, const GatedDeltaRuleArgs& args) {
  return !context.exact && args.qkv.dtype == DType::kBf16 && args.key_dim == kDim &&
         args.beta_scale == 1 && args.value_dim % kRows == 0 &&
         args.a.shape[1] == args.b.shape[1] && args.y.row_stride % 2 == 0 &&
         reinterpret_cast<uintptr_t>(args.y.data) % 4 == 0 &&
         args.state.recurrent.row_stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(args.state.recurrent.data) % 16 == 0;
}

Status gated_delta_rule_step(CudaContext& context, const GatedDeltaRuleArgs& args) {
  const MutableTensorView& snapshots = args.snapshots.recurrent;
  const int64_t Nv = args.b.shape[1];
  const Params params{.qkv = args.qkv.as<CudaBf16>(),
                      .a = args.a.as<float>(),
                      .b = args.b.as<float>(),
                      .neg_exp_a_log = args.neg_exp_a_log.as<float>(),
                      .dt_bias = args.dt_bias.as<float>(),
                      .y = args.y.as<CudaBf16>(),
                      .state = args.state.recurrent.as<float>(),
                      .snapshots = {.data = snapshots.data,
                                    .scales = args.snapshots.scales.as<float>(),
                                    .slot_stride = snapshots.row_stride,
                                    .scale_stride = args.snapshots.scales.row_stride,
                                    .Dk = kDim,
                                    .dtype = snapshots.dtype},
                      .qkv_stride = args.qkv.row_stride,
                      .a_stride = args.a.row_stride,
                      .b_stride = args.b.row_stride,
                      .y_stride = args.y.row_stride,
                      .state_stride = args.state.recurrent.row_stride,
                      .Nk = args.num_key_heads,
                      .Nv = Nv,
                      .Dv = args.value_dim,
                      .batch = args.forward->batch};
  return launch(context, "gated_delta_rule step", step_kernel,
                grid_of(args.forward->num_sequences() * Nv * (args.value_dim / kRows)), kThreads,
                params);
}

}  // namespace heddle::ops
