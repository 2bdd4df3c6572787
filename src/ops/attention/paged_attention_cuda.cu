// SPDX-License-Identifier: Apache-2.0
// Paged attention in fp32: y[r] = sum over the tokens j that row r sees of softmax(scale q[r] .
// k[j]) v[j].
// append_kernel: a block stores one row of k or v in its page, a thread every 128th number.
// attend_kernel: a block owns a unit and kTiles * 128 columns of the values, through segments of
// the tokens in blocks of 128: a thread scores one token, a warp turns rows of scores into weights,
// then a thread adds up kTiles columns. join_kernel: a block joins the segments of one row and
// query head.
// A unit is up to kRows pairs of a token of one sequence and a query head of one kv head. Its
// tokens follow each other from a multiple of tokens_per_unit on, counted from the sequence's first
// row of the step. In a step with trees a unit has one token, because each node sees other tokens.
// Flops: 2 * (D + Dv) a pair of a row and a token, without tensor cores. Bytes: keys and values
// once a unit.
// Used in exact mode, for trees, if plain kernels are requested, for pages or widths that no faster
// kernel supports, and for sequences that neither paged_attention_sm90.h (prompts) nor
// paged_attention_split.h (decode) computes.
#include <algorithm>
#include <cfloat>
#include <limits>

#include "ops/attention/paged_attention.h"
#include "ops/attention/paged_attention_sm90.h"
#include "ops/attention/paged_attention_split.h"
#include "ops/attention/paged_attention_unit.h"
#include "ops/cuda/any_dtype.cuh"
#include "ops/cuda/draft_tree.cuh"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/page_table.cuh"
#include "ops/cuda/reduce.cuh"

namespace heddle::ops {

namespace {

constexpr int kBlock = static_cast<int>(kAttentionBlock);
// a thread scores one token of a block, and sums one of 128 columns.
constexpr int kThreads = kBlock;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRows = 16;
constexpr int kSlice = kWarp;  // channels of the keys that are in shared memory at a time
// Floats from one token's scores to the next: a multiple of a float4, with few bank conflicts.
constexpr int kScoreStride = 20;
constexpr float kNothing = -INFINITY;  // the maximum of a row that has not seen a token yet

struct AppendParams {
  const void* from;  // keys or values to append
  void* pool;
  int64_t from_stride, page_stride, width;
  DType from_dtype, pool_dtype;
  float scale;
  float value_scale;             // scale of the first num_values channels of each head
  int64_t head_dim, num_values;  // num_values 0: all channels are divided by `scale`
  PageTable pages;
  const int32_t* first_stored;  // tokens of each sequence that are stored already
  DeviceBatch batch;
};

// Selects sequences by their number of new tokens in the step.
struct NewTokens {
  int64_t least = 1;
  int64_t most = std::numeric_limits<int64_t>::max();

  [[nodiscard]] __host__ __device__ bool contain(int64_t count) const {
    return count >= least && count <= most;
  }
};

struct Params {
  const void* q;
  void* y;
  const void* k;  // pages of the keys
  const void* v;
  const float* sinks;  // attention sinks; null: the layer has none
  DType dtype;         // dtype of q and y
  DType kv_dtype;
  int64_t q_stride, y_stride;
  int64_t k_page_stride, v_page_stride, k_token_stride, v_token_stride, v_head_stride;
  int64_t T, D, Dv, Nkv, group, window;
  float scale, v_scale;
  float value_scale;   // scale of the first num_values channels of a key, which are its value
  int64_t num_values;  // 0: values are not a part of the keys
  PageTable pages;
  DeviceBatch batch;
  int64_t tokens_per_unit, heads_per_unit, head_chunks;
  NewTokens handled;  // the kernel computes these sequences and skips the others
  int64_t column_tiles;
  // Segments of a unit that have a block each; 1: a block computes all of them.
  int64_t num_segments;
  float* part_outputs;  // indexed by [row, query head, segment], if there are several segments
  float* part_maxima;
  float* part_sums;
};

// A block copies one row, a thread every kThreads-th number, as number / scale rounded to nearest
// even. Reads and writes each number once: bandwidth-bound.
__global__ void __launch_bounds__(kThreads) append_kernel(const __grid_constant__ AppendParams p) {
  wait_for_inputs();
  const int64_t row = blockIdx.x;
  const int64_t b = p.batch.row_sequences[row];
  if (b < 0 || p.batch.state_slots[b] < 0) return;  // the row is padding
  const int64_t position = p.batch.context_lens[b] + row - p.batch.query_start[b];
  if (position < p.first_stored[b]) return;  // the pages have this row already
  const int64_t to =
      p.pages.page_of(b, position) * p.page_stride + position % p.pages.page_size * p.width;
  for (int64_t c = threadIdx.x; c < p.width; c += kThreads) {
    const float value = load_number(p.from, p.from_dtype, row * p.from_stride + c);
    const float scale = c % p.head_dim < p.num_values ? p.value_scale : p.scale;
    store_number(p.pool, p.pool_dtype, to + c, __fdiv_rn(value, scale));
  }
}

// The rows that a block works on. Row r is token r / heads, query head r % heads.
struct Unit {
  int64_t sequence;
  int64_t first_token;     // index of the unit's first row among the rows of the step
  int64_t first_position;  // position of the first row in its sequence
  int64_t kv_head;
  int64_t first_head;  // first query head of the unit
  int64_t column;      // first column of the values that the block computes
  int heads;
  int num_rows;
  TokenRange tokens;  // tokens that at least one row attends to

  [[nodiscard]] __device__ int64_t position(int row) const { return first_position + row / heads; }
};

__device__ TokenRange seen_from(const Params& p, int64_t position) {
  const int64_t begin = p.window > 0 ? position - p.window + 1 : 0;
  return {.begin = begin > 0 ? begin : 0, .end = position + 1};
}

// Finds the unit that begins at row `t` of the step. Returns false if the row is inside another
// unit or is padding.
__device__ bool find_unit(const Params& p, int64_t t, Unit& unit) {
  unit.sequence = p.batch.row_sequences[t];
  if (unit.sequence < 0) return false;
  const int64_t start = p.batch.query_start[unit.sequence];
  const int64_t end = p.batch.query_start[unit.sequence + 1];
  if (!p.handled.contain(end - start) || (t - start) % p.tokens_per_unit != 0) return false;
  const int64_t num_tokens = min(p.tokens_per_unit, end - t);
  unit.first_token = t;
  unit.first_position =
      TreeNode(p.batch, unit.sequence, t).position(p.batch.context_lens[unit.sequence] + t - start);
  unit.tokens = {.begin = seen_from(p, unit.first_position).begin,
                 .end = unit.first_position + num_tokens};
  unit.num_rows = static_cast<int>(num_tokens);  // multiplied by `heads` below
  return true;
}

// State of the online softmax of each row: its maximum and the sum of exp(score - maximum).
struct RowStates {
  float maximum[kRows];
  float sum[kRows];
};

struct Shared {
  // Queries times the scale; zeros beyond D and the unit's rows.
  alignas(16) float q[kSlice][kRows];
  float k[kBlock][kSlice + 1];
  // Scores, indexed by token and row; later exp(score - maximum).
  alignas(16) float scores[kBlock][kScoreStride];
  int64_t v_at[kBlock];  // index in the pool of each token's first value
  // Index in the pool of each token's first key channel; -1: no row attends to the token.
  int64_t k_at[kBlock];
  RowStates segment, joined;
  float shrink[kRows];
  int begin[kRows], end[kRows];  // the tokens of the block that each row attends to
};

// scores[j][r] = q[r] . k[j], computed by thread j as a sum over ascending channels.
__device__ void score_block(const Params& p, const Unit& unit, Shared& shared) {
  float sums[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) sums[r] = 0;
  for (int64_t d0 = 0; d0 < p.D; d0 += kSlice) {
    __syncthreads();  // the previous slice has been read, and k_at has been written
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const bool there = d0 + lane < p.D;  // the lane's channel of the slice exists
    float q[kRows / kWarps];
    load_numbers(
        p.q, p.dtype,
        [&](int i) {
          const int r = warp + i * kWarps;
          if (r >= unit.num_rows || !there) return int64_t{-1};
          return (unit.first_token + r / unit.heads) * p.q_stride +
                 (unit.first_head + r % unit.heads) * p.D + d0 + lane;
        },
        q);
#pragma unroll
    for (int i = 0; i < kRows / kWarps; ++i) {
      const float scale = d0 + lane < p.num_values ? p.value_scale : p.scale;
      shared.q[lane][warp + i * kWarps] = __fmul_rn(q[i], scale);
    }
    constexpr int kBatch = 16;  // key channels that are loaded together
    for (int first = warp; first < kBlock; first += kBatch * kWarps) {
      float k[kBatch];
      load_numbers(
          p.k, p.kv_dtype,
          [&](int i) {
            const int64_t at = shared.k_at[first + i * kWarps];
            return at >= 0 && there ? at + d0 + lane : int64_t{-1};
          },
          k);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) shared.k[first + i * kWarps][lane] = k[i];
    }
    __syncthreads();
#pragma unroll 8
    for (int d = 0; d < kSlice; ++d) {
      const float k = shared.k[threadIdx.x][d];
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r] = fmaf(shared.q[d][r], k, sums[r]);
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) shared.scores[threadIdx.x][r] = sums[r];
}

// Turns the scores of the block that begins at token `first` into exp(score - new maximum), a warp
// for each row, and computes the factors by which the rows' earlier sums must be multiplied. A lane
// has tokens lane + 32 * i of the block, so that the order of the sums depends on absolute
// positions only. A token that a row does not attend to counts as -infinity.
__device__ void soften_block(const Params& p, const Unit& unit, int64_t first, Shared& shared) {
  const int lane = threadIdx.x % kWarp;
  for (int r = threadIdx.x / kWarp; r < kRows; r += kWarps) {
    int begin = 0, end = 0;
    if (r < unit.num_rows) {
      const TokenRange seen = seen_from(p, unit.position(r));
      const auto within = [first](int64_t token) {
        return static_cast<int>(max(int64_t{0}, min(token - first, int64_t{kBlock})));
      };
      begin = within(seen.begin);
      end = within(seen.end);
    }
    if (lane == 0) {
      shared.begin[r] = begin;
      shared.end[r] = end;
      if (begin >= end) shared.shrink[r] = 1;
    }
    if (begin >= end) continue;
    constexpr int kTokens = kBlock / kWarp;
    float scores[kTokens];
    float top = kNothing;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int j = lane + i * kWarp;
      scores[i] = j >= begin && j < end ? shared.scores[j][r] : kNothing;
      top = fmaxf(top, scores[i]);
    }
    const float old_maximum = shared.segment.maximum[r];
    const float maximum = fmaxf(old_maximum, warp_max(top));
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kTokens; ++i) {
      const int j = lane + i * kWarp;
      const float weight = j >= begin && j < end ? expf(scores[i] - maximum) : 0.0f;
      shared.scores[j][r] = weight;
      sum = __fadd_rn(sum, weight);
    }
    sum = warp_sum(sum);
    __syncwarp();  // all lanes have read the old maximum
    if (lane == 0) {
      shared.shrink[r] = expf(old_maximum - maximum);
      shared.segment.sum[r] = fmaf(shared.segment.sum[r], shared.shrink[r], sum);
      shared.segment.maximum[r] = maximum;
    }
  }
}

// outputs[i][r] = outputs * shrink + sum of weight * v over row r's tokens in ascending order, for
// the columns unit.column + thread + 128 * i.
template <int kTiles>
__device__ void add_values(const Params& p, const Unit& unit, const Shared& shared, int begin,
                           int end, float (&outputs)[kTiles][kRows]) {
  bool all_see_all = begin == 0 && end == kBlock;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const float shrink = shared.shrink[r];
#pragma unroll
    for (int i = 0; i < kTiles; ++i) outputs[i][r] = __fmul_rn(outputs[i][r], shrink);
    const bool sees_all = shared.begin[r] == 0 && shared.end[r] == kBlock;
    all_see_all = all_see_all && (sees_all || r >= unit.num_rows);
  }
  constexpr int kBatch = 8 / kTiles;  // tokens whose values are loaded together
  for (int first = begin; first < end; first += kBatch) {
    float v[kBatch * kTiles];
    load_numbers(
        p.v, p.kv_dtype,
        [&](int i) {
          const int j = first + i / kTiles;
          const int64_t c = unit.column + threadIdx.x + i % kTiles * kThreads;
          return j < end && c < p.Dv ? shared.v_at[j] + c : int64_t{-1};
        },
        v);
#pragma unroll
    for (int token = 0; token < kBatch; ++token) {
      const int j = first + token;
      if (j >= end) break;
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (!all_see_all && (j < shared.begin[r] || j >= shared.end[r])) continue;
        const float weight = shared.scores[j][r];
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          outputs[i][r] = fmaf(weight, v[token * kTiles + i], outputs[i][r]);
        }
      }
    }
  }
}

// Computes the online softmax of the unit over one segment, into shared.segment and `outputs`.
template <int kTiles>
__device__ void attend_segment(const Params& p, const Unit& unit, int64_t segment, Shared& shared,
                               float (&outputs)[kTiles][kRows]) {
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) outputs[i][r] = 0;
  }
  __syncthreads();  // the previous segment has been joined
  if (threadIdx.x < kRows) {
    shared.segment.maximum[threadIdx.x] = kNothing;
    shared.segment.sum[threadIdx.x] = 0;
  }
  const int64_t begin = max(unit.tokens.begin, segment * kAttentionSegment);
  const int64_t end = min(unit.tokens.end, (segment + 1) * kAttentionSegment);
  for (int64_t first = begin / kBlock * kBlock; first < end; first += kBlock) {
    const int64_t token = first + threadIdx.x;
    __syncthreads();  // the previous block has been summed
    shared.k_at[threadIdx.x] = -1;
    if (token >= begin && token < end) {
      const int64_t place = TreeNode(p.batch, unit.sequence, unit.first_token).place(token);
      const int64_t page = p.pages.page_of(unit.sequence, place);
      const int64_t slot = place % p.pages.page_size;
      shared.k_at[threadIdx.x] =
          page * p.k_page_stride + slot * p.k_token_stride + unit.kv_head * p.D;
      shared.v_at[threadIdx.x] =
          page * p.v_page_stride + slot * p.v_token_stride + unit.kv_head * p.v_head_stride;
    }
    score_block(p, unit, shared);
    __syncthreads();
    soften_block(p, unit, first, shared);
    __syncthreads();
    add_values(p, unit, shared, static_cast<int>(max(begin - first, int64_t{0})),
               static_cast<int>(min(end - first, int64_t{kBlock})), outputs);
  }
  __syncthreads();
}

// Whether a row attends to no token of a segment, so that it stays unchanged. NaN scores give a NaN
// sum, which is not nothing.
__device__ bool saw_nothing(float maximum, float sum) { return maximum == kNothing && sum == 0; }

// The factors with which a segment's result and the sum of the segments before it are added.
struct JoinFactors {
  float old_factor, new_factor, maximum;
};

__device__ JoinFactors join_factors(float joined_maximum, float maximum) {
  const float top = fmaxf(joined_maximum, maximum);
  return {
      .old_factor = expf(joined_maximum - top), .new_factor = expf(maximum - top), .maximum = top};
}

__device__ float join(float joined, float part, const JoinFactors& factors) {
  return fmaf(part, factors.new_factor, __fmul_rn(joined, factors.old_factor));
}

// The factor of a row's weighted sum of values: v_scale divided by the sum of the weights and the
// sink, all relative to the larger exponent, so that nothing overflows.
__device__ float output_factor(const Params& p, int64_t head, float maximum, float sum) {
  if (p.sinks == nullptr) return __fmul_rn(__fdiv_rn(1.0f, sum), p.v_scale);
  const float sink = p.sinks[head];
  const float top = fmaxf(maximum, sink);
  const float factor = expf(maximum - top);
  const float total = fmaf(sum, factor, expf(sink - top));
  return __fmul_rn(__fdiv_rn(factor, total), p.v_scale);
}

__device__ int64_t part_of(const Params& p, int64_t token, int64_t head, int64_t segment) {
  return (token * p.Nkv * p.group + head) * p.num_segments + segment % p.num_segments;
}

// A block computes a unit in kTiles * 128 columns of the values, for all of its segments, or for
// one of them, whose result it stores in the workspace. A row's operations and their order depend
// on its position alone: 2 * (D + Dv) operations for each pair of a row and a token it attends to.
// Decode reads each key and value once for all heads of a unit: at 4.2 TB/s, 16 us for 64 Ki tokens
// of 2 kv heads of 128 in bf16. Prefill reads them once for every 16 rows, mostly from the cache,
// and is bound by fp32 arithmetic: 140 us for 1024 x 1024 pairs of 8 heads of 256 at 60 TFLOP/s,
// without tensor cores.
template <int kTiles>
__global__ void __launch_bounds__(kThreads, kTiles == 4 ? 2 : 3)
    attend_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ Shared shared;
  int64_t index = blockIdx.x;
  const auto take = [&index](int64_t count) {
    const int64_t part = index % count;
    index /= count;
    return part;
  };
  Unit unit;
  unit.column = take(p.column_tiles) * kTiles * kThreads;
  unit.kv_head = take(p.Nkv);
  const int64_t first_in_group = take(p.head_chunks) * p.heads_per_unit;
  const int64_t own_segment = take(p.num_segments);
  // Units whose rows attend to the most tokens come first.
  if (!find_unit(p, p.T - 1 - index, unit)) return;
  unit.first_head = unit.kv_head * p.group + first_in_group;
  unit.heads = static_cast<int>(min(p.heads_per_unit, p.group - first_in_group));
  unit.num_rows *= unit.heads;

  int64_t segment = unit.tokens.begin / kAttentionSegment;
  int64_t end = (unit.tokens.end - 1) / kAttentionSegment + 1;
  float outputs[kTiles][kRows];
  if (p.num_segments > 1) {
    segment += own_segment;
    if (segment >= end) return;
    attend_segment(p, unit, segment, shared, outputs);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r >= unit.num_rows) continue;
      const int64_t part =
          part_of(p, unit.first_token + r / unit.heads, unit.first_head + r % unit.heads, segment);
      if (threadIdx.x == 0 && unit.column == 0) {
        p.part_maxima[part] = shared.segment.maximum[r];
        p.part_sums[part] = shared.segment.sum[r];
      }
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int64_t c = unit.column + threadIdx.x + i * kThreads;
        if (c < p.Dv) p.part_outputs[part * p.Dv + c] = outputs[i][r];
      }
    }
    return;
  }

  float joined[kTiles][kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) joined[i][r] = 0;
  }
  if (threadIdx.x < kRows) {
    shared.joined.maximum[threadIdx.x] = kNothing;
    shared.joined.sum[threadIdx.x] = 0;
  }
  for (; segment < end; ++segment) {
    attend_segment(p, unit, segment, shared, outputs);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (saw_nothing(shared.segment.maximum[r], shared.segment.sum[r])) continue;
      const JoinFactors factors = join_factors(shared.joined.maximum[r], shared.segment.maximum[r]);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) joined[i][r] = join(joined[i][r], outputs[i][r], factors);
    }
    __syncthreads();
    const int r = static_cast<int>(threadIdx.x);
    if (r < kRows && !saw_nothing(shared.segment.maximum[r], shared.segment.sum[r])) {
      const JoinFactors factors = join_factors(shared.joined.maximum[r], shared.segment.maximum[r]);
      shared.joined.sum[r] = join(shared.joined.sum[r], shared.segment.sum[r], factors);
      shared.joined.maximum[r] = factors.maximum;
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r >= unit.num_rows) continue;
    const int64_t head = unit.first_head + r % unit.heads;
    const float factor = output_factor(p, head, shared.joined.maximum[r], shared.joined.sum[r]);
    const int64_t at = (unit.first_token + r / unit.heads) * p.y_stride + head * p.Dv;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const int64_t c = unit.column + threadIdx.x + i * kThreads;
      if (c < p.Dv) store_number(p.y, p.dtype, at + c, __fmul_rn(joined[i][r], factor));
    }
  }
}

// A block joins the segments of one row and query head in order, with the operations of
// attend_kernel(); a thread computes every kThreads-th column. Reads 4 * (Dv + 2) bytes a segment.
__global__ void __launch_bounds__(kThreads) join_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  const int64_t Nq = p.Nkv * p.group;
  const int64_t t = blockIdx.x / Nq, head = blockIdx.x % Nq;
  const int64_t b = p.batch.row_sequences[t];
  if (b < 0) return;
  const int64_t start = p.batch.query_start[b];
  if (!p.handled.contain(p.batch.query_start[b + 1] - start)) return;
  const TokenRange seen =
      seen_from(p, TreeNode(p.batch, b, t).position(p.batch.context_lens[b] + t - start));
  const int64_t begin = seen.begin / kAttentionSegment;
  const int64_t end = (seen.end - 1) / kAttentionSegment + 1;
  for (int64_t c = threadIdx.x; c < p.Dv; c += kThreads) {
    float maximum = kNothing, sum = 0, output = 0;
    for (int64_t segment = begin; segment < end; ++segment) {
      const int64_t part = part_of(p, t, head, segment);
      if (saw_nothing(p.part_maxima[part], p.part_sums[part])) continue;
      const JoinFactors factors = join_factors(maximum, p.part_maxima[part]);
      output = join(output, p.part_outputs[part * p.Dv + c], factors);
      sum = join(sum, p.part_sums[part], factors);
      maximum = factors.maximum;
    }
    store_number(p.y, p.dtype, t * p.y_stride + head * p.Dv + c,
                 __fmul_rn(output, output_factor(p, head, maximum, sum)));
  }
}

Status append(CudaContext& context, const PagedAttentionArgs& args, const TensorView& from,
              const MutableTensorView& pool, float scale) {
  const AppendParams params{.from = from.data,
                            .pool = pool.data,
                            .from_stride = from.row_stride,
                            .page_stride = pool.row_stride,
                            .width = from.shape[1],
                            .from_dtype = from.dtype,
                            .pool_dtype = pool.dtype,
                            .scale = scale,
                            .value_scale = args.kv.v_scale,
                            .head_dim = args.head_dim,
                            .num_values = num_value_channels(args),
                            .pages = page_table_of(*args.forward, args.kv.table),
                            .first_stored = first_stored_of(*args.forward, args.kv.table),
                            .batch = args.forward->batch};
  return launch(context, "paged_attention append", append_kernel, grid_of(from.shape[0]), kThreads,
                params);
}

// Upper bound for the segments of a unit among these sequences; 0 if there are no such sequences.
// For a step that may be captured, it counts all tokens that the page table has room for.
int64_t most_segments(const PagedAttentionArgs& args, const NewTokens& handled) {
  const ForwardContext& forward = *args.forward;
  const int64_t each = forward.few_rows_each();
  int64_t tokens = 0;
  if (each > 0 && handled.contain(each)) {
    tokens = forward.batch.page_table_width * forward.page_size;
  }
  for (int64_t b = 0; b < forward.num_sequences() && each == 0; ++b) {
    const int64_t num_rows = forward.num_rows(b);
    if (!handled.contain(num_rows)) continue;
    tokens = std::max(tokens, forward.context_lens[static_cast<size_t>(b)] + num_rows);
  }
  const int64_t most = ceil_div(tokens, kAttentionSegment);
  if (args.window == 0) return most;
  return std::min(most, (args.window + kRows - 2) / kAttentionSegment + 2);
}

bool has_any(const PagedAttentionArgs& args, const NewTokens& tokens) {
  for (int64_t b = 0; b < args.forward->num_sequences(); ++b) {
    if (tokens.contain(args.forward->num_rows(b))) return true;
  }
  return false;
}

// Whether only the split kernel supports heads of this width; it then computes prompts, too.
bool is_wide(int64_t head_dim) { return head_dim > 256; }

// Computes the sequences for which there is a fast kernel, and returns the other ones.
Result<NewTokens> attend_fast(CudaContext& context, const PagedAttentionArgs& args) {
  NewTokens others;
  if (!args.forward->tree_starts.empty()) return others;  // the fast kernels do not support trees
  if (paged_attention_sm90_fits(context, args)) {
    const NewTokens prompts{.least = paged_attention_sm90_min_tokens(args)};
    if (has_any(args, prompts)) HEDDLE_RETURN_IF_ERROR(paged_attention_sm90(context, args));
    others.most = prompts.least - 1;
  }
  if (paged_attention_split_fits(context, args)) {
    // Without the Hopper kernel, the split kernel would read the keys of longer prompts too often.
    // For wide heads it is used all the same, because the plain kernels take several times as long.
    constexpr int64_t kMostSplitTokens = 8;
    const bool alone = others.most == NewTokens().most;
    const int64_t without = is_wide(args.head_dim) ? args.q.shape[0] : kMostSplitTokens;
    const int64_t most = alone ? without : others.most;
    if (has_any(args, {.most = most})) {
      HEDDLE_RETURN_IF_ERROR(paged_attention_split(context, args, most));
    }
    others.least = most + 1;
  }
  return others;
}

Params params_of(const PagedAttentionArgs& args) {
  const bool latent = args.kv.v.data == nullptr;
  const MutableTensorView& values = latent ? args.kv.k : args.kv.v;
  const int64_t group = args.q.shape[1] / (args.num_kv_heads * args.head_dim);
  const int64_t value_width = latent ? args.head_dim : value_dim_of(args);
  const int64_t heads = std::min<int64_t>(group, kRows);
  return {.q = args.q.data,
          .y = args.y.data,
          .k = args.kv.k.data,
          .v = values.data,
          .sinks = args.sinks.as<float>(),
          .dtype = args.q.dtype,
          .kv_dtype = args.kv.k.dtype,
          .q_stride = args.q.row_stride,
          .y_stride = args.y.row_stride,
          .k_page_stride = args.kv.k.row_stride,
          .v_page_stride = values.row_stride,
          .k_token_stride = args.num_kv_heads * args.head_dim,
          .v_token_stride = args.num_kv_heads * value_width,
          .v_head_stride = value_width,
          .T = args.q.shape[0],
          .D = args.head_dim,
          .Dv = value_dim_of(args),
          .Nkv = args.num_kv_heads,
          .group = group,
          .window = args.window,
          .scale = args.scale * args.kv.k_scale,
          .v_scale = args.kv.v_scale,
          .value_scale = args.scale * args.kv.v_scale,
          .num_values = num_value_channels(args),
          .pages = page_table_of(*args.forward, args.kv.table),
          .batch = args.forward->batch,
          .tokens_per_unit = args.forward->tree_starts.empty() ? kRows / heads : 1,
          .heads_per_unit = heads,
          .head_chunks = ceil_div(group, heads),
          .handled = {},
          .column_tiles = ceil_div(value_dim_of(args), kAttentionColumns),
          .num_segments = 1,
          .part_outputs = nullptr,
          .part_maxima = nullptr,
          .part_sums = nullptr};
}

template <int kTiles>
Status attend(CudaContext& context, const Params& params) {
  const int64_t blocks =
      params.T * params.num_segments * params.head_chunks * params.Nkv * params.column_tiles;
  return launch(context, "paged_attention", attend_kernel<kTiles>, grid_of(blocks), kThreads,
                params);
}

}  // namespace

Status paged_attention_cuda(CudaContext& context, const PagedAttentionArgs& args) {
  if (args.k.data == nullptr) return attend_to_pages_cuda(context, args);
  HEDDLE_RETURN_IF_ERROR(append(context, args, args.k, args.kv.k, args.kv.k_scale));
  if (args.v.data != nullptr) {
    HEDDLE_RETURN_IF_ERROR(append(context, args, args.v, args.kv.v, args.kv.v_scale));
  }
  return attend_to_pages_cuda(context, args);
}

std::string describe_attention_cuda(const CudaContext& context, const AttentionForm& form) {
  if (context.exact) return "the plain kernels of exact mode";
  if (context.plain_attention) return "plain kernels, asked for";
  const bool few = paged_attention_split_takes(context, form);
  if (!few) return "plain kernels, of all number formats and widths";
  if (is_wide(form.head_dim)) return "tensor cores, the keys split among blocks";
  return paged_attention_sm90_takes(context, form)
             ? "tensor cores, decode steps with the keys split among blocks"
             : "decode steps with the keys split among blocks, prompts with plain kernels";
}

Status attend_to_pages_cuda(CudaContext& context, const PagedAttentionArgs& args) {
  Params params = params_of(args);
  HEDDLE_ASSIGN_OR_RETURN(params.handled, attend_fast(context, args));
  const int64_t rows = params.T * params.Nkv * params.group;
  const int64_t num_segments = most_segments(args, params.handled);
  if (num_segments == 0) return {};
  if (num_segments > 1 && rows * num_segments <= kAttentionParts) {
    params.num_segments = num_segments;
    params.part_outputs = reinterpret_cast<float*>(args.workspace.data());
    params.part_maxima = params.part_outputs + kAttentionParts * params.Dv;
    params.part_sums = params.part_maxima + kAttentionParts;
  }
  if (params.Dv <= kThreads) {
    HEDDLE_RETURN_IF_ERROR(attend<1>(context, params));
  } else if (params.Dv <= 2 * kThreads) {
    HEDDLE_RETURN_IF_ERROR(attend<2>(context, params));
  } else {
    HEDDLE_RETURN_IF_ERROR(attend<4>(context, params));
  }
  if (params.num_segments == 1) return {};
  return launch(context, "paged_attention join", join_kernel, grid_of(rows), kThreads, params);
}

}  // namespace heddle::ops
