// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/linear_attention/gated_delta_rule_step.h"
#include "ops/linear_attention/snapshot_rows.cuh"

namespace heddle::ops {

namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kDim = 128;  // Dk
constexpr int kLanes = 8;  // of a value row
constexpr int kQuads = 4;  // of neighbouring columns of a row in a lane
constexpr int kRowsAtOnce = kWarp / kLanes;
constexpr int kPasses = 4;  // rows of a lane
constexpr int kWarpRows = kRowsAtOnce * kPasses;
constexpr int kRows = kWarps * kWarpRows;  // value rows of a block

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

// A token's share in all rows of a head.
struct Token {
  float k[kDim];  // normalised
  float q[kDim];
  float v[kRows];
  float y[kRows];
  float sums[3][kWarps];  // k.k, q.q and k.q of the columns of a warp
  float alpha, beta;
};

__device__ inline float row_sum(float value) {
  for (int distance = kLanes / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

__device__ inline float quad_dot(const float4& a, const float4& b, float sum) {
  sum = fmaf(a.x, b.x, sum);
  sum = fmaf(a.y, b.y, sum);
  sum = fmaf(a.z, b.z, sum);
  return fmaf(a.w, b.w, sum);
}

__device__ inline float4 faded_plus(const float4& s, float alpha, const float4& k, float weight) {
  return {fmaf(weight, k.x, alpha * s.x), fmaf(weight, k.y, alpha * s.y),
          fmaf(weight, k.z, alpha * s.z), fmaf(weight, k.w, alpha * s.w)};
}

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

// Stores a lane's part of a value row, counted over the heads of the slot, as snapshots are kept.
__device__ inline void store_snapshot_part(const Params& p, int64_t slot, int64_t row, int part,
                                           const float4 (&s)[kQuads]) {
  RowScale scale;
  if (p.snapshots.dtype == DType::kI8) {
    float largest = 0;
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      for (const float value : {s[i].x, s[i].y, s[i].z, s[i].w}) {
        largest = fmaxf(largest, fabsf(value));
        finite = finite && isfinite(value);
      }
    }
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
      finite = __shfl_xor_sync(0xffffffffu, finite ? 1 : 0, distance) != 0 && finite;
    }
    scale = scale_of(largest, finite);
    if (part == 0) p.snapshots.scales[slot * p.snapshots.scale_stride + row] = scale.scale;
  }
  const int64_t number = p.snapshots.number_of(slot, row);
#pragma unroll
  for (int i = 0; i < kQuads; ++i) {
    const int64_t at = number + i * (kLanes * 4) + part * 4;
    store_snapshot_number(p.snapshots, at, s[i].x, scale);
    store_snapshot_number(p.snapshots, at + 1, s[i].y, scale);
    store_snapshot_number(p.snapshots, at + 2, s[i].z, scale);
    store_snapshot_number(p.snapshots, at + 3, s[i].w, scale);
  }
}

// A block takes 64 value rows of one head of one sequence through its tokens. Eight lanes share a
// row, with four neighbouring columns of every 32, so that a warp moves whole lines; a lane's 16
// loads are under way together. With p = S k and o = S q of the old state:
//
//   d = beta (v - alpha p)     y = alpha o + d (k.q)     S <- alpha S + d k
__global__ void __launch_bounds__(kThreads, 4) step_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ Token token;
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int64_t slabs = p.Dv / kRows;
  const int64_t first_row = blockIdx.x % slabs * kRows;
  const int64_t h = blockIdx.x / slabs % p.Nv, b = blockIdx.x / slabs / p.Nv;
  const int64_t slot = p.batch.state_slots[b];
  if (slot < 0) return;  // padding
  const int64_t first_token = p.batch.query_start[b];
  const int64_t num_tokens = p.batch.query_start[b + 1] - first_token;
  if (num_tokens == 0 || num_tokens > kStepMostTokens) return;
  const bool fresh = p.batch.context_lens[b] == 0;

  const int part = lane % kLanes;
  const int own_row = warp * kWarpRows + lane / kLanes;  // and every kRowsAtOnce-th after it
  float* state =
      p.state + slot * p.state_stride + (h * p.Dv + first_row + own_row) * kDim + part * 4;
  float4 s[kPasses][kQuads];
#pragma unroll
  for (int r = 0; r < kPasses; ++r) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      const float* from = state + r * kRowsAtOnce * kDim + i * (kLanes * 4);
      s[r][i] = fresh ? float4{0, 0, 0, 0} : __ldcs(reinterpret_cast<const float4*>(from));
    }
  }
  int32_t snapshot = p.batch.snapshot_start[b];
  const int32_t snapshots_end = p.batch.snapshot_start[b + 1];
  for (int64_t t = 0; t < num_tokens; ++t) {
    const float kq = prepare(p, first_token + t, h, first_row, token);
    float4 k[kQuads];
    float p1[kPasses] = {}, p2[kPasses] = {};
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      k[i] = reinterpret_cast<const float4*>(token.k)[i * kLanes + part];
      const float4 q = reinterpret_cast<const float4*>(token.q)[i * kLanes + part];
#pragma unroll
      for (int r = 0; r < kPasses; ++r) {
        p1[r] = quad_dot(s[r][i], k[i], p1[r]);
        p2[r] = quad_dot(s[r][i], q, p2[r]);
      }
    }
#pragma unroll
    for (int r = 0; r < kPasses; ++r) {
      const int row = own_row + r * kRowsAtOnce;
      const float d = token.beta * (token.v[row] - token.alpha * row_sum(p1[r]));
      const float y = fmaf(d, kq, token.alpha * row_sum(p2[r]));
      if (part == 0) token.y[row] = y;
#pragma unroll
      for (int i = 0; i < kQuads; ++i) s[r][i] = faded_plus(s[r][i], token.alpha, k[i], d);
    }
    __syncthreads();
    if (thread < kRows / 2) {
      const __nv_bfloat162 pair =
          __floats2bfloat162_rn(token.y[2 * thread], token.y[2 * thread + 1]);
      *reinterpret_cast<__nv_bfloat162*>(p.y + (first_token + t) * p.y_stride + h * p.Dv +
                                         first_row + 2 * thread) = pair;
    }
    while (snapshot < snapshots_end && p.batch.snapshots[snapshot].num_tokens == t + 1) {
      const int64_t to = p.batch.snapshots[snapshot++].slot;
#pragma unroll
      for (int r = 0; r < kPasses; ++r) {
        store_snapshot_part(p, to, h * p.Dv + first_row + own_row + r * kRowsAtOnce, part, s[r]);
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kPasses; ++r) {
#pragma unroll
    for (int i = 0; i < kQuads; ++i) {
      float* to = state + r * kRowsAtOnce * kDim + i * (kLanes * 4);
      __stcs(reinterpret_cast<float4*>(to), s[r][i]);
    }
  }
}

}  // namespace

bool gated_delta_rule_step_fits(const CudaContext& context, const GatedDeltaRuleArgs& args) {
  return !context.exact && args.qkv.dtype == DType::kBf16 && args.key_dim == kDim &&
         args.value_dim % kRows == 0 && args.a.shape[1] == args.b.shape[1] &&
         args.y.row_stride % 2 == 0 && reinterpret_cast<uintptr_t>(args.y.data) % 4 == 0 &&
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
