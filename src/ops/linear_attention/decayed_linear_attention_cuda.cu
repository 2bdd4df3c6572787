// SPDX-License-Identifier: Apache-2.0
// The recurrence token by token: S <- exp(dt decay) S + k (dt v)', y = S'q + skip v.
// A block computes kWarps * kRows value rows of one head of one sequence through its tokens. A warp
// has kRows of them in registers, a lane every 32nd column. Tokens are prepared in groups, each by
// one warp, so that there is no barrier for each token. A row's sums depend on Dk alone, and its
// state is always stored in fp32: the bits are the same for any chunking and batch. Decode: 8 * Dk
// * Dv bytes a head for 5 * Dk * Dv operations, bandwidth-bound. Prompts: bound by the chain of
// tokens, with one dot product of five shuffles each. Used for decode, trees, exact mode and
// whatever decayed_linear_attention_chunks.cu does not support.
#include <limits>

#include "ops/cuda/any_dtype.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/linear_attention/decayed_linear_attention.cuh"

namespace heddle::ops {

namespace {

using decayed_attention::Params;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kStateRegisters = 32;  // numbers of the state that a thread has

static_assert(kMaxCudaDecayedKeyDim == kStateRegisters * kWarp,
              "a row of it fits the registers of a warp");

// The part of shared memory that holds a batch of tokens, ready for the recurrence: 16 to 24 KiB
// for every width. A lane owns the columns lane + 32 * i.
template <int kColumns>
struct Tokens {
  static constexpr int kCount = 64 / kColumns;
  static constexpr int kWidth = kColumns * kWarp;
  static constexpr int kRows = kWarps * (kStateRegisters / kColumns);  // value rows of a block

  float k[kCount][kWidth];  // keys; zeros beyond Dk
  float q[kCount][kWidth];
  float v[kCount][kRows];
  float dt[kCount];
  float alpha[kCount];
};

// The value head and sequence that a block computes.
struct Head {
  int64_t b, h, first_token, num_tokens;
};

// A warp prepares token `t` of the head and stores it at index `at` of the arrays of `tokens`.
template <int kColumns>
__device__ void prepare_token(const Params& p, const Head& head, int64_t t, int at,
                              Tokens<kColumns>& tokens) {
  const int lane = threadIdx.x % kWarp;
  const int64_t row = head.first_token + t;
  const int64_t k_at = row * p.vkq_stride + p.Nv * p.Dv + head.h * p.Nk / p.Nv * p.Dk;
  const int64_t q_at = k_at + p.Nk * p.Dk;
  const auto column = [&](int64_t first, int i) {
    const int c = lane + i * kWarp;
    return c < p.Dk ? first + c : int64_t{-1};
  };
  float numbers[kColumns];
  load_numbers(p.vkq, p.dtype, [&](int i) { return column(k_at, i); }, numbers);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) tokens.k[at][lane + i * kWarp] = numbers[i];
  load_numbers(p.vkq, p.dtype, [&](int i) { return column(q_at, i); }, numbers);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) tokens.q[at][lane + i * kWarp] = numbers[i];
  if (lane != 0) return;
  const float dt = decayed_attention::time_step(p, row, head.h);
  tokens.dt[at] = dt;
  tokens.alpha[at] = expf(__fmul_rn(dt, p.decay[head.h]));
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
      p.vkq, p.dtype,
      [&](int i) {
        const int number = static_cast<int>(threadIdx.x) + i * kThreads;
        const int64_t row = first_row + number % kRows;
        if (number / kRows >= count || row >= p.Dv) return int64_t{-1};
        return (head.first_token + first + number / kRows) * p.vkq_stride + head.h * p.Dv + row;
      },
      values);
#pragma unroll
  for (int i = 0; i < kPerThread; ++i) {
    const int number = static_cast<int>(threadIdx.x) + i * kThreads;
    if (number < kNumbers) tokens.v[number / kRows][number % kRows] = values[i];
  }
}

template <int kColumns>
__global__ void __launch_bounds__(kThreads, kColumns == 32 ? 2 : 3)
    decayed_attention_kernel(const __grid_constant__ Params p) {
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
  if (decayed_attention::takes_chunks(p, head.b, head.num_tokens)) return;
  const bool fresh = p.batch.context_lens[head.b] == 0;
  const float skip = p.skip == nullptr ? 0.0f : p.skip[head.h];
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
      const float alpha = tokens.alpha[t], dt = tokens.dt[t];
      float sum[kRows], weight[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        sum[r] = 0;
        weight[r] = __fmul_rn(dt, tokens.v[t][warp * kRows + r]);
      }
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        const int c = lane + i * kWarp;
        const float k = tokens.k[t][c], q = tokens.q[t][c];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          s[r][i] = fmaf(weight[r], k, __fmul_rn(alpha, s[r][i]));
          sum[r] = fmaf(s[r][i], q, sum[r]);
        }
      }
      float y = 0;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float output = fmaf(skip, tokens.v[t][warp * kRows + r], warp_sum(sum[r]));
        if (lane == r) y = output;
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
  return launch(context, "decayed_linear_attention", decayed_attention_kernel<kColumns>,
                grid_of(blocks), kThreads, params);
}

}  // namespace

Status decayed_linear_attention_cuda(CudaContext& context, const DecayedLinearAttentionArgs& args) {
  if (args.vkq.shape[0] == 0) return {};
  const MutableTensorView& snapshots = args.snapshots.recurrent;
  Params params{.vkq = args.vkq.data,
                .a = args.a.as<float>(),
                .decay = args.decay.as<float>(),
                .dt_bias = args.dt_bias.as<float>(),
                .skip = args.skip.as<float>(),
                .y = args.y.data,
                .state = args.state.recurrent.as<float>(),
                .snapshots = {.data = snapshots.data,
                              .scales = args.snapshots.scales.as<float>(),
                              .slot_stride = snapshots.row_stride,
                              .scale_stride = args.snapshots.scales.row_stride,
                              .Dk = args.key_dim,
                              .dtype = snapshots.dtype},
                .dtype = args.vkq.dtype,
                .vkq_stride = args.vkq.row_stride,
                .a_stride = args.a.row_stride,
                .y_stride = args.y.row_stride,
                .state_stride = args.state.recurrent.row_stride,
                .B = args.forward->num_sequences(),
                .Nk = args.num_key_heads,
                .Nv = args.decay.shape[0],
                .Dk = args.key_dim,
                .Dv = args.value_dim,
                .dt_low = args.dt_low,
                .dt_high = args.dt_high,
                .chunked_from = std::numeric_limits<int64_t>::max(),
                .batch = args.forward->batch};
  if (decayed_attention::chunks_fit(context, args)) {
    // Sequences of fewer tokens are as fast token by token.
    constexpr int64_t kChunkedFrom = 24;
    params.chunked_from = kChunkedFrom;
    int64_t num_chunked = 0;
    for (int64_t b = 0; b < params.B; ++b) {
      if (args.forward->num_rows(b) >= kChunkedFrom) ++num_chunked;
    }
    if (num_chunked > 0) HEDDLE_RETURN_IF_ERROR(decayed_attention::launch_chunks(context, params));
    if (num_chunked == params.B && args.forward->tree_starts.empty()) return {};
  }
  if (params.Dk <= 4 * kWarp) return launch_columns<4>(context, params);
  if (params.Dk <= 8 * kWarp) return launch_columns<8>(context, params);
  return launch_columns<32>(context, params);
}

}  // namespace heddle::ops
