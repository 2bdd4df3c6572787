// SPDX-License-Identifier: Apache-2.0
// The recurrence token by token. With s a value row of the state before the token,
//
//   s <- alpha s     e = v - s.k     y = s.q + beta e (k.q)     s <- s + beta e k
//
// as on the CPU: both dot products need the decayed row only, so that they are computed in one
// reduction. A block computes kWarps * kRows value rows of one head of one sequence through its
// tokens; a warp has kRows of them in registers, a lane every 32nd column. Decode: 8 * Dk * Dv
// bytes a head; prompts are bound by latency. Used in exact mode, for trees of drafts, for decay
// per channel, and for whatever the faster kernels do not support: gated_delta_rule_sm90.h for
// prompts, gated_delta_rule_step.h for decode.
#include "ops/cuda/any_dtype.cuh"
#include "ops/cuda/draft_tree.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/linear_attention/gated_delta_rule.h"
#include "ops/linear_attention/gated_delta_rule_sm90.h"
#include "ops/linear_attention/gated_delta_rule_step.h"
#include "ops/linear_attention/snapshot_rows.cuh"

namespace heddle::ops {

namespace {

struct Params {
  const void* qkv;
  const float* a;
  const float* b;
  const float* neg_exp_a_log;
  const float* dt_bias;
  void* y;
  float* state;
  SnapshotMatrices snapshots;
  DType dtype;  // dtype of qkv and y
  int64_t qkv_stride, a_stride, b_stride, y_stride, state_stride;
  int64_t B, Nk, Nv, Dk, Dv;
  int64_t least_rows, most_rows;  // sequences with fewer or more rows are skipped
  bool channel_decay;
  float beta_scale;
  DeviceBatch batch;
};

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStateRegisters = 32;  // numbers of the state that a thread has

static_assert(kMaxCudaKeyDim == kStateRegisters * kWarp,
              "a row of it fits the registers of a warp");

// Prepared tokens, 24 to 26 KiB for any width; a lane has columns lane + 32 * i.
template <int kColumns>
struct Tokens {
  static constexpr int kCount = 64 / kColumns;
  static constexpr int kWidth = kColumns * kWarp;
  static constexpr int kRows = kWarps * (kStateRegisters / kColumns);  // value rows of a block

  float k[kCount][kWidth];  // normalised keys; zeros beyond Dk
  float q[kCount][kWidth];
  float alpha[kCount][kWidth];
  float v[kCount][kRows];
  float beta[kCount];
  float kq[kCount];
};

// The value head and sequence that a block computes.
struct Head {
  int64_t b, h, first_token, num_tokens;
};

__device__ float decay_of(const Params& p, int64_t row, int64_t gate, float neg_exp_a_log) {
  const float x = p.a[row * p.a_stride + gate] + p.dt_bias[gate];
  return expf(neg_exp_a_log * (x > 20.0f ? x : log1pf(expf(x))));
}

// A warp prepares token `t` of the head and stores it at index `at` of the arrays of `tokens`.
template <int kColumns>
__device__ void prepare_token(const Params& p, const Head& head, int64_t t, int at,
                              Tokens<kColumns>& tokens) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = head.first_token + t;
  const int64_t q_at = row * p.qkv_stride + head.h * p.Nk / p.Nv * p.Dk;
  const int64_t k_at = q_at + p.Nk * p.Dk;
  const float neg_exp_a_log = p.neg_exp_a_log[head.h];
  const float head_alpha = p.channel_decay ? 0.0f : decay_of(p, row, head.h, neg_exp_a_log);
  const auto column = [&](int64_t first, int i) {
    const int c = lane + i * kWarp;
    return c < p.Dk ? first + c : int64_t{-1};
  };
  float k[kColumns], q[kColumns];
  load_numbers(p.qkv, p.dtype, [&](int i) { return column(k_at, i); }, k);
  load_numbers(p.qkv, p.dtype, [&](int i) { return column(q_at, i); }, q);
  float kk = 0, qq = 0;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int c = lane + i * kWarp;
    const bool there = c < p.Dk;
    kk = fmaf(k[i], k[i], kk);
    qq = fmaf(q[i], q[i], qq);
    float alpha = there ? head_alpha : 0.0f;
    if (there && p.channel_decay) alpha = decay_of(p, row, head.h * p.Dk + c, neg_exp_a_log);
    tokens.alpha[at][c] = alpha;
  }
  const float k_factor = 1.0f / sqrtf(warp_sum(kk) + 1e-6f);
  const float q_factor = 1.0f / sqrtf(static_cast<float>(p.Dk)) / sqrtf(warp_sum(qq) + 1e-6f);
  float kq = 0;
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int c = lane + i * kWarp;
    k[i] = __fmul_rn(k[i], k_factor);
    q[i] = __fmul_rn(q[i], q_factor);
    tokens.k[at][c] = k[i];
    tokens.q[at][c] = q[i];
    kq = fmaf(k[i], q[i], kq);
  }
  kq = warp_sum(kq);
  if (lane == 0) {
    tokens.kq[at] = kq;
    tokens.beta[at] = p.beta_scale / (1.0f + expf(-p.b[row * p.b_stride + head.h]));
  }
}

// Loads v of `count` tokens from `first` on, for the block's value rows, which begin at
// `first_row`.
template <int kColumns>
__device__ void load_values(const Params& p, const Head& head, int64_t first, int count,
                            int64_t first_row, Tokens<kColumns>& tokens) {
  constexpr int kRows = Tokens<kColumns>::kRows;
  constexpr int kNumbers = Tokens<kColumns>::kCount * kRows;
  constexpr int kPerThread = (kNumbers + kThreads - 1) / kThreads;
  float values[kPerThread];
  load_numbers(
      p.qkv, p.dtype,
      [&](int i) {
        const int number = static_cast<int>(threadIdx.x) + i * kThreads;
        const int64_t row = first_row + number % kRows;
        if (number / kRows >= count || row >= p.Dv) return int64_t{-1};
        return (head.first_token + first + number / kRows) * p.qkv_stride + 2 * p.Nk * p.Dk +
               head.h * p.Dv + row;
      },
      values);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int number = static_cast<int>(threadIdx.x) + i * kThreads;
    if (number < kNumbers) tokens.v[number / kRows][number % kRows] = values[i];
  }
}

// A block computes kWarps * kRows value rows of one head of one sequence through all its tokens; a
// warp has kRows of them in registers, a lane every 32nd column. Tokens are prepared in groups,
// each by one warp, so that there is no barrier for each token. Every block of a head repeats the
// preparation (one row of k and q against kWarps * kRows rows of the state).
//
// A row's sums depend on Dk alone, and its state is always stored in fp32: the bits are the same
// for any chunking and batch. Decode reads and writes the state once, 8 * Dk * Dv bytes for 8 * Dk
// * Dv operations: bandwidth-bound, 1.0 us for 32 heads of 128 x 128 at 4.2 TB/s. In prefill the
// state stays in registers, and the time is that of the chain of tokens: two dot products of five
// shuffles for each.
template <int kColumns>
__global__ void __launch_bounds__(kThreads, kColumns == 32 ? 2 : 3)
    delta_rule_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  constexpr int kRows = kStateRegisters / kColumns;
  __shared__ Tokens<kColumns> tokens;
  const int warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
  const int64_t slabs = ceil_div(p.Dv, kWarps * kRows);
  const int64_t slab = blockIdx.x % slabs;
  Head head{.b = blockIdx.x / slabs / p.Nv,
            .h = blockIdx.x / slabs % p.Nv,
            .first_token = 0,
            .num_tokens = 0};
  const int64_t slot = p.batch.state_slots[head.b];
  if (slot < 0) return;  // the sequence is padding
  head.first_token = p.batch.query_start[head.b];
  head.num_tokens = p.batch.query_start[head.b + 1] - head.first_token;
  if (head.num_tokens < p.least_rows || head.num_tokens > p.most_rows) return;
  const bool fresh = p.batch.context_lens[head.b] == 0;
  // Index of the warp's first row in the head.
  const int64_t first_row = (slab * kWarps + warp) * kRows;
  float* const states = p.state + slot * p.state_stride + (head.h * p.Dv + first_row) * p.Dk;
  float s[kRows][kColumns];
  // Loads the state from the working slot, or from the slot whose index is `behind` higher. A lane
  // reads only what it wrote itself.
  const auto load_state = [&](int64_t behind, bool is_there) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int c = lane + i * kWarp;
        const bool there = is_there && first_row + r < p.Dv && c < p.Dk;
        s[r][i] = there ? states[behind * p.state_stride + r * p.Dk + c] : 0.0f;
      }
    }
  };
  const auto store_state = [&](int64_t behind) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int c = lane + i * kWarp;
        if (first_row + r < p.Dv && c < p.Dk) {
          states[behind * p.state_stride + r * p.Dk + c] = s[r][i];
        }
      }
    }
  };
  load_state(0, !fresh);
  const int64_t num_chain = num_chain_rows(p.batch, head.b, head.num_tokens);
  const bool has_row = lane < kRows && first_row + lane < p.Dv;  // lane r writes y of row r
  const int64_t value_at = head.h * p.Dv + first_row + lane;
  int32_t snapshot = p.batch.snapshot_start[head.b];
  const int32_t snapshots_end = p.batch.snapshot_start[head.b + 1];

  for (int64_t group = 0; group < head.num_tokens; group += Tokens<kColumns>::kCount) {
    const int count = static_cast<int>(
        min(static_cast<int64_t>(Tokens<kColumns>::kCount), head.num_tokens - group));
    __syncthreads();  // all warps have used the previous tokens
    load_values(p, head, group, count, slab * kWarps * kRows, tokens);
    for (int t = warp; t < count; t += kWarps) prepare_token(p, head, group + t, t, tokens);
    __syncthreads();
    for (int t = 0; t < count; ++t) {
      const int64_t row = head.first_token + group + t;
      // Index of the row's tree node; negative: the row precedes the tree.
      const int64_t node = group + t - num_chain;
      if (node == 0) store_state(0);
      if (node >= 0) {
        load_state(parent_row(p.batch, head.b, group + t) - num_chain + 1, /*is_there=*/true);
      }
      float sk[kRows], sq[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sk[r] = sq[r] = 0;
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int c = lane + i * kWarp;
        const float k = tokens.k[t][c], q = tokens.q[t][c], alpha = tokens.alpha[t][c];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          s[r][i] = __fmul_rn(s[r][i], alpha);
          sk[r] = fmaf(s[r][i], k, sk[r]);
          sq[r] = fmaf(s[r][i], q, sq[r]);
        }
      }
      float y = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float error = __fsub_rn(tokens.v[t][warp * kRows + r], warp_sum(sk[r]));
        sk[r] = __fmul_rn(tokens.beta[t], error);  // factor of k in the update of the state
        const float output = fmaf(sk[r], tokens.kq[t], warp_sum(sq[r]));
        if (lane == r) y = output;
      }
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const float k = tokens.k[t][lane + i * kWarp];
#pragma unroll
        for (int r = 0; r < kRows; ++r) s[r][i] = fmaf(sk[r], k, s[r][i]);
      }
      if (has_row) store_number(p.y, p.dtype, row * p.y_stride + value_at, y);
      if (node >= 0) store_state(node + 1);
      while (snapshot < snapshots_end && p.batch.snapshots[snapshot].num_tokens == group + t + 1) {
        const int64_t to = p.batch.snapshots[snapshot++].slot;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (first_row + r < p.Dv) {
            store_snapshot_row(p.snapshots, to, head.h * p.Dv + first_row + r, s[r]);
          }
        }
      }
    }
  }
  if (num_chain == head.num_tokens) store_state(0);
}

template <int kColumns>
Status launch_columns(CudaContext& context, const Params& params) {
  constexpr int64_t kRows = kWarps * (kStateRegisters / kColumns);
  const int64_t blocks = params.B * params.Nv * ceil_div(params.Dv, kRows);
  return launch(context, "gated_delta_rule", delta_rule_kernel<kColumns>, grid_of(blocks), kThreads,
                params);
}

}  // namespace

int64_t gated_delta_rule_workspace_bytes_cuda(const CudaContext& context,
                                              const GatedDeltaRuleSizes& sizes) {
  return gated_delta_rule_sm90_workspace_bytes(context, sizes);
}

Status gated_delta_rule_cuda(CudaContext& context, const GatedDeltaRuleArgs& args) {
  const auto any_has = [&](int64_t least, int64_t most) {
    for (int64_t b = 0; b < args.forward->num_sequences(); ++b) {
      const int64_t num_rows = args.forward->num_rows(b);
      if (num_rows >= least && num_rows <= most) return true;
    }
    return false;
  };
  int64_t least_rows = 1;
  int64_t most_rows = args.qkv.shape[0];
  const bool has_trees = !args.forward->tree_starts.empty();
  if (!has_trees && gated_delta_rule_sm90_fits(context, args)) {
    if (any_has(kSm90MinRows, most_rows)) {
      HEDDLE_RETURN_IF_ERROR(gated_delta_rule_sm90(context, args));
    }
    most_rows = kSm90MinRows - 1;
  }
  if (!has_trees && gated_delta_rule_step_fits(context, args)) {
    if (any_has(1, kStepMostTokens)) HEDDLE_RETURN_IF_ERROR(gated_delta_rule_step(context, args));
    least_rows = kStepMostTokens + 1;
  }
  if (!any_has(least_rows, most_rows)) return {};
  const MutableTensorView& snapshots = args.snapshots.recurrent;
  const Params params{.qkv = args.qkv.data,
                      .a = args.a.as<float>(),
                      .b = args.b.as<float>(),
                      .neg_exp_a_log = args.neg_exp_a_log.as<float>(),
                      .dt_bias = args.dt_bias.as<float>(),
                      .y = args.y.data,
                      .state = args.state.recurrent.as<float>(),
                      .snapshots = {.data = snapshots.data,
                                    .scales = args.snapshots.scales.as<float>(),
                                    .slot_stride = snapshots.row_stride,
                                    .scale_stride = args.snapshots.scales.row_stride,
                                    .Dk = args.key_dim,
                                    .dtype = snapshots.dtype},
                      .dtype = args.qkv.dtype,
                      .qkv_stride = args.qkv.row_stride,
                      .a_stride = args.a.row_stride,
                      .b_stride = args.b.row_stride,
                      .y_stride = args.y.row_stride,
                      .state_stride = args.state.recurrent.row_stride,
                      .B = args.forward->num_sequences(),
                      .Nk = args.num_key_heads,
                      .Nv = args.b.shape[1],
                      .Dk = args.key_dim,
                      .Dv = args.value_dim,
                      .least_rows = least_rows,
                      .most_rows = most_rows,
                      .channel_decay = args.a.shape[1] != args.b.shape[1],
                      .beta_scale = args.beta_scale,
                      .batch = args.forward->batch};
  if (params.Dk <= 4 * kWarp) return launch_columns<4>(context, params);
  if (params.Dk <= 8 * kWarp) return launch_columns<8>(context, params);
  return launch_columns<32>(context, params);
}

}  // namespace heddle::ops
