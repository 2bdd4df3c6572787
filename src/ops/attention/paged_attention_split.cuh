// SPDX-License-Identifier: Apache-2.0
// Device code of split attention (paged_attention_split.h): parameters of its two kernels, the plan
// that the first kernel computes and the second reads, and the launch of the second. make_plan() is
// called by all threads of a block and computes a prefix sum over the lengths of the sequences'
// units. Every block computes the same plan, which is faster than a launch for it. It reads two
// numbers per sequence. Used by paged_attention_split.cu and paged_attention_join.cu.
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
inline constexpr int kColumns = 8;  // rows (token, query head) that a block computes together
inline constexpr int kMostSequences = static_cast<int>(kSplitSequences);
inline constexpr float kLog2E = 1.4426950408889634f;
inline constexpr unsigned kAll = 0xffffffffu;

static_assert(kSplitParts == int64_t{2} * kSplitBlocks * kColumns);

// A step's plan: the length of a share, and the tile at which each sequence's units begin on the
// line.
struct Plan {
  SplitShares shares;
  // First tile of each sequence; the last entry is the length of the line.
  int starts[kMostSequences + 1];
};

static_assert(sizeof(Plan) <= kSplitPlanBytes);

// Results of the rows over the tokens of one part: the maximum and sum of the softmax, in units of
// scores times log2 e, and D weighted sums of values.
struct Parts {
  float* maxima;   // [kSplitParts] maxima of the scores
  float* sums;     // [kSplitParts] sums of exp2(score - maximum)
  float* outputs;  // [kSplitParts, D] weighted sums of values
  Plan* plan;
};

struct Params {
  const CudaBf16* q;
  const CudaBf16* k;  // page pool of the keys
  const CudaBf16* v;
  CudaBf16* y;
  const float* sinks;  // attention sinks; null: none
  int64_t q_stride, y_stride;
  // Elements from page to page and from token to token, in both pools.
  int64_t page_stride, token_stride;
  PageTable pages;
  DeviceBatch batch;
  int32_t num_sequences;
  int32_t num_rows;
  int32_t num_shares;     // upper bound of the shares
  int32_t heads_on_line;  // kv heads that split the same list of tiles (heads_on_a_line())
  int32_t most_tokens;
  int32_t num_kv_heads, group;
  int32_t window;  // tokens that a row attends to; 0: all
  float scale;     // scale of the scores times log2 e
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

struct Scan {
  SplitLoad loads[kWarps];
};

__device__ inline int num_units_of(const Params& p, const SplitExtent& extent) {
  return chunks_of(p, extent.num_tokens) * (p.num_kv_heads / p.heads_on_line);
}

// A unit and the sequence that it belongs to; `index` counts the units of a sequence on the line.
struct Unit {
  int sequence, index;
  SplitExtent extent;
  SplitUnit span;
};

// `start` is the tile at which the sequence's first unit begins.
__device__ inline Unit unit_of(const SplitShares& shares, const SplitExtent& extent, int sequence,
                               int index, int start) {
  const int length = shares.unit_length(extent);
  return {
      .sequence = sequence,
      .index = index,
      .extent = extent,
      .span = {.start = start + index * length, .length = length, .num_tiles = extent.num_tiles()}};
}

// Computes the plan of the step; every block computes the same one.
__device__ inline void make_plan(const Params& p, Plan& plan, Scan& scan) {
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  const int per_thread = (p.num_sequences + kThreads - 1) / kThreads;
  const int first = thread * per_thread, last = min(p.num_sequences, first + per_thread);
  SplitLoad own;
  for (int b = first; b < last; ++b) {
    const SplitExtent extent = extent_of(p, b);
    own.add(extent, num_units_of(p, extent));
  }
  SplitLoad until = own;  // sum over this lane and the lanes before it
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const SplitLoad more{.length = __shfl_up_sync(kAll, until.length, distance),
                         .num_units = __shfl_up_sync(kAll, until.num_units, distance),
                         .longest = __shfl_up_sync(kAll, until.longest, distance)};
    if (lane >= distance) until.add(more);
  }
  if (lane == kWarp - 1) scan.loads[warp] = until;
  __syncthreads();
  SplitLoad before, all;  // sums over the warps before this one, and over all
#pragma unroll
  for (int i = 0; i < kWarps; ++i) {
    if (i < warp) before.add(scan.loads[i]);
    all.add(scan.loads[i]);
  }
  const auto shares = SplitShares::of(all, p.num_shares);
  int start = shares.whole ? before.num_units + until.num_units - own.num_units
                           : before.length + until.length - own.length;
  for (int b = first; b < last; ++b) {
    plan.starts[b] = start;
    const SplitExtent extent = extent_of(p, b);
    start += shares.unit_length(extent) * num_units_of(p, extent);
  }
  if (thread == 0) {
    plan.shares = shares;
    plan.starts[p.num_sequences] = shares.begin_of(shares.num_shares);
  }
  __syncthreads();
}

// Stores the plan in the workspace for the kernel that joins the parts.
__device__ inline void leave_plan(const Params& p, const Plan& plan) {
  if (threadIdx.x == 0) p.parts.plan->shares = plan.shares;
  for (int b = static_cast<int>(threadIdx.x); b < p.num_sequences; b += kThreads) {
    p.parts.plan->starts[b] = plan.starts[b];
  }
}

// Factor of a row's summed values: v_scale divided by the sum of weights and sink, computed
// relative to the larger exponent.
__device__ inline float output_factor(const Params& p, int head, float maximum, float sum) {
  if (p.sinks == nullptr) return p.v_scale / sum;
  const float sink = p.sinks[head] * kLog2E;
  const float top = fmaxf(maximum, sink);
  const float share = exp2f(maximum - top);
  return share / fmaf(sum, share, exp2f(sink - top)) * p.v_scale;
}

// Launches the kernel that joins units with several parts; the previous kernel has stored the
// parts.
Status launch_join(CudaContext& context, const Params& params, int64_t head_dim);

}  // namespace heddle::ops::split_attention
