// SPDX-License-Identifier: Apache-2.0
// Attention in splits on the device (paged_attention_split.h): the parameters of its two kernels,
// the plan that one makes and the other reads, and the launch of the second.
#pragma once

#include <cstdint>

#include "ops/attention/paged_attention_plan.h"
#include "ops/attention/paged_attention_split.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/page_table.cuh"
#include "ops/cuda/reduce.cuh"

namespace heddle::ops::split_attention {

inline constexpr int kWarps = 4;
inline constexpr int kThreads = kWarps * kWarp;
inline constexpr int kColumns = 8;  // rows of the step that a block takes together
inline constexpr int kMostSequences = static_cast<int>(kSplitSequences);
inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr unsigned kAll = 0xffffffffu;

static_assert(kSplitParts == int64_t{2} * kMostSplits * kColumns);

// Results of a column over the tokens of one split: its maximum and sum, in units of the scores
// times log2 e, and D sums of values.
struct Parts {
  float* maxima;   // [kSplitParts]
  float* sums;     // [kSplitParts]
  float* outputs;  // [kSplitParts, D]
  int32_t* plan;   // [1 + kMostSequences]: Plan::split and Plan::parts
};

struct Params {
  const CudaBf16* q;
  const CudaBf16* k;  // pages
  const CudaBf16* v;
  CudaBf16* y;
  const float* sinks;  // null: none
  int64_t q_stride, y_stride;
  int64_t page_stride, token_stride;  // of both pools
  PageTable pages;
  DeviceBatch batch;
  int32_t num_sequences;
  int32_t num_rows;
  int32_t most_tokens;
  int32_t num_kv_heads, group;
  int32_t window;  // 0: none
  float scale;     // of the scores, times log2 e
  float v_scale;
  Parts parts;
};

__device__ inline SplitExtent extent_of(const Params& p, int b) {
  const int num_tokens = p.batch.query_start[b + 1] - p.batch.query_start[b];
  if (num_tokens > p.most_tokens) return {};
  const int context = p.batch.context_lens[b];
  return {.num_tokens = num_tokens,
          .begin = p.window > 0 ? max(0, context + 1 - p.window) : 0,
          .end = context + num_tokens};
}

__device__ inline int chunks_of(const Params& p, int num_tokens) {
  return (num_tokens * p.group + kColumns - 1) / kColumns;
}

// Sequence b has the items from starts[b] on; the results of those with several splits are kept
// from place parts[b] on, eight columns each.
struct Plan {
  int split;
  int starts[kMostSequences + 1];
  int parts[kMostSequences];
};

struct Scan {
  SplitLoad loads[kWarps];
  int sums[2][kWarps];
};

// Every block makes the same plan.
__device__ inline void make_plan(const Params& p, Plan& plan, Scan& scan) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int per_thread = (p.num_sequences + kThreads - 1) / kThreads;
  const int first = thread * per_thread, last = min(p.num_sequences, first + per_thread);
  SplitLoad load;
  for (int b = first; b < last; ++b) {
    const SplitExtent extent = extent_of(p, b);
    if (extent.num_tokens > 0) load.add(extent, chunks_of(p, extent.num_tokens) * p.num_kv_heads);
  }
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    load.add({.tokens = __shfl_xor_sync(kAll, load.tokens, distance),
              .units = __shfl_xor_sync(kAll, load.units, distance),
              .longest = __shfl_xor_sync(kAll, load.longest, distance)});
  }
  if (lane == 0) scan.loads[warp] = load;
  __syncthreads();
  load = {};
#pragma unroll
  for (int i = 0; i < kWarps; ++i) load.add(scan.loads[i]);
  const int split = split_length(load, static_cast<int>(gridDim.x));

  int items = 0, kept = 0;  // kept: of sequences with several splits
  for (int b = first; b < last; ++b) {
    const SplitExtent extent = extent_of(p, b);
    const int num_splits = extent.num_splits(split);
    const int own = num_splits * chunks_of(p, extent.num_tokens) * p.num_kv_heads;
    items += own;
    if (num_splits > 1) kept += own;
  }
  int items_until = items, kept_until = kept;
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const int more = __shfl_up_sync(kAll, items_until, distance);
    const int more_kept = __shfl_up_sync(kAll, kept_until, distance);
    if (lane >= distance) {
      items_until += more;
      kept_until += more_kept;
    }
  }
  if (lane == kWarp - 1) {
    scan.sums[0][warp] = items_until;
    scan.sums[1][warp] = kept_until;
  }
  __syncthreads();
  int start = items_until - items, part = kept_until - kept;
  for (int i = 0; i < warp; ++i) {
    start += scan.sums[0][i];
    part += scan.sums[1][i];
  }
  for (int b = first; b < last; ++b) {
    const SplitExtent extent = extent_of(p, b);
    const int num_splits = extent.num_splits(split);
    const int own = num_splits * chunks_of(p, extent.num_tokens) * p.num_kv_heads;
    plan.starts[b] = start;
    start += own;
    plan.parts[b] = part;
    if (num_splits > 1) part += own;
  }
  if (last == p.num_sequences && first < last) plan.starts[last] = start;
  if (thread == 0) plan.split = split;
  __syncthreads();
}

// For those who join.
__device__ inline void leave_plan(const Params& p, const Plan& plan) {
  if (threadIdx.x == 0) p.parts.plan[0] = plan.split;
  for (int b = static_cast<int>(threadIdx.x); b < p.num_sequences; b += kThreads) {
    p.parts.plan[1 + b] = plan.parts[b];
  }
}

// The factor of summed values: v_scale over the sum of the weights and the sink's, relative to the
// larger exponent.
__device__ inline float output_factor(const Params& p, int head, float maximum, float sum) {
  if (p.sinks == nullptr) return p.v_scale / sum;
  const float sink = p.sinks[head] * kLog2E;
  const float top = fmaxf(maximum, sink);
  const float share = exp2f(maximum - top);
  return share / fmaf(sum, share, exp2f(sink - top)) * p.v_scale;
}

// Joins the results of sequences with several splits, which the kernel before has left.
Status launch_join(CudaContext& context, const Params& params, int64_t head_dim);

}  // namespace heddle::ops::split_attention
