// SPDX-License-Identifier: Apache-2.0
// softmax(scale Q K') V for few new tokens: scores are [16 tokens, 8 rows] products of a warp
// (mma.sync). A block computes an equal share of the step's tokens (paged_attention_plan.h), one
// item after the other: 8 rows (token, query head) of a sequence and kv head over some of their
// tokens. A warp computes every fourth tile of 16 tokens, a lane has two rows of the softmax. The
// warps' results are added in order; the result of an item that is only a part of its unit is
// stored for paged_attention_join.cu. Bytes: 4 * D a token and kv head, once: bound by memory.
// Flops: 4 * D a pair of a row and a token. Used in fast mode, in bf16 with D of 64, 128, 256 or
// 512, for sequences too short for paged_attention_sm90.h, or of up to 8 new tokens on GPUs without
// that kernel; with D of 512, which that kernel does not support, for all sequences. Not for trees.
#include <algorithm>
#include <limits>

#include "ops/attention/paged_attention_split.cuh"
#include "ops/attention/paged_attention_unit.h"
#include "ops/cuda/warp_matrix.cuh"

namespace heddle::ops {
namespace split_attention {
namespace {

constexpr int kKeys = kTileTokens;  // keys that a warp multiplies at a time

// Widest heads with which two blocks fit on a multiprocessor; with wider ones only one block fits.
constexpr int kMostForTwo = 256;

// A part of a unit, or all of it: eight rows of a sequence and one kv head over some of their
// tokens. Column c of the eight is token c / group, query head c % group of the heads that share
// the kv head, counted from `first`.
struct Item {
  int sequence, kv_head;
  int first, num_columns;
  int begin, end;  // range of tokens of the item
  int part;        // index of its results in groups of eight; -1: the results are written to y
};

__device__ inline int position_of(const Params& p, int sequence, int column) {
  return p.batch.context_lens[sequence] + column / p.group;
}

// Finds the unit that contains tile `at` of the line; there must be one.
__device__ inline Unit unit_at(const Params& p, const Plan& plan, int at) {
  int low = 0, high = p.num_sequences;  // invariant: starts[low] <= at < starts[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (plan.starts[middle] <= at) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const SplitExtent extent = extent_of(p, low);
  const int start = plan.starts[low];
  const int index = (at - start) / plan.shares.unit_length(extent);
  return unit_of(plan.shares, extent, low, index, start);
}

// Iterates over the items of a block in order. A block computes a share for one of the kv heads
// that have this line.
class Items {
 public:
  __device__ Items(const Params& p, const Plan& plan, int block)
      : p_(p), plan_(plan), share_(block / p.heads_on_line), head_(block % p.heads_on_line) {
    if (share_ >= plan.shares.num_shares) return;
    at_ = begin_ = plan.shares.begin_of(share_);
    end_ = plan.shares.begin_of(share_ + 1);
  }

  // Sets `item` to the next item. Returns false, with `item` unchanged, if there is none.
  __device__ bool next(Item& item) {
    while (at_ < end_) {
      const Unit unit = unit_at(p_, plan_, at_);
      at_ = unit.span.end();
      const int first_tile = unit.span.tiles_before(begin_);
      const int last_tile = unit.span.tiles_before(end_);
      if (first_tile == last_tile) continue;  // the share has only empty tiles of the unit
      item = item_of(unit, first_tile, last_tile);
      return true;
    }
    return false;
  }

 private:
  __device__ Item item_of(const Unit& unit, int first_tile, int last_tile) const {
    const int chunks = chunks_of(p_, unit.extent.num_tokens);
    Item item;
    item.sequence = unit.sequence;
    item.first = unit.index % chunks * kColumns;
    item.num_columns = min(kColumns, unit.extent.num_tokens * p_.group - item.first);
    item.kv_head = unit.index / chunks * p_.heads_on_line + head_;
    const int top = position_of(p_, unit.sequence, item.first + item.num_columns - 1) + 1;
    const int least =
        p_.window > 0 ? max(0, position_of(p_, unit.sequence, item.first) + 1 - p_.window) : 0;
    // Index of the unit's first tile among the tiles of its sequence.
    const int tile = unit.extent.begin / kTileTokens;
    item.begin = max(least, (tile + first_tile) * kTileTokens);
    item.end = min(top, (tile + last_tile) * kTileTokens);
    const bool whole = first_tile == 0 && last_tile == unit.span.num_tiles;
    item.part = whole ? -1 : split_part(share_, first_tile == 0) * p_.heads_on_line + head_;
    return item;
  }

  const Params& p_;
  const Plan& plan_;
  int share_, head_;
  int begin_ = 0, end_ = 0;  // range of the block's share in tiles
  int at_ = 0;               // tile of the line at which the next unit begins
};

// Memory is idle while the new tokens are appended. Meanwhile this prefetches the item's first
// tokens, if they are from earlier steps, into the second-level cache; all 264 blocks together
// prefetch less than it has room for.
template <int kDim>
__device__ inline void fetch_context(const Params& p, const Item& item) {
  constexpr int kRowBytes = kDim * 2;
  constexpr int kMostTokens = (96 << 10) / (2 * kRowBytes);
  const int context = p.batch.context_lens[item.sequence];
  const int end = min(min(item.end, context), item.begin + kMostTokens);
  for (int token = item.begin + static_cast<int>(threadIdx.x); token < end; token += kThreads) {
    const int64_t row = p.pages.page_of(item.sequence, token) * p.page_stride +
                        token % p.pages.page_size * p.token_stride + item.kv_head * kDim;
    fetch_ahead<kRowBytes>(p.k + row);
    fetch_ahead<kRowBytes>(p.v + row);
  }
}

// The queries of an item in shared memory, if a thread's registers have no room for them. Rows are
// padded by 8 numbers, so that they are in different banks.
template <int kDim, bool kShared>
struct Queries {};

template <int kDim>
struct Queries<kDim, true> {
  CudaBf16 queries[kColumns][kDim + 8];
};

template <int kDim>
struct Shared : Queries<kDim, (kDim > kMostForTwo)> {
  static constexpr int kStages = kDim >= 256 ? 3 : 4;
  static constexpr int kRowBytes = kDim * 2;

  // Each warp has several stages of keys and values that are used in turn; afterwards the same
  // memory holds the results of all warps.
  union {
    uint8_t stages[kWarps][kStages][kKeys * kRowBytes];
    // The padding puts columns 2 * n into different banks.
    float results[kWarps][kColumns][kDim + 4];
  };

  float maxima[kWarps][kColumns], sums[kWarps][kColumns];
  Plan plan;
  Scan scan;
};

// Loads the queries of an item; columns that the item does not have become zeros. All threads call
// it.
template <int kDim>
__device__ inline void share_queries(const Params& p, const Item& item, Shared<kDim>& s) {
  constexpr int kOctets = kDim / 8;
  for (int i = static_cast<int>(threadIdx.x); i < kColumns * kOctets; i += kThreads) {
    const int column = i / kOctets, first = i % kOctets * 8;
    const int at = item.first + column;
    const CudaBf16* row = p.q + (p.batch.query_start[item.sequence] + at / p.group) * p.q_stride +
                          int64_t{item.kv_head * p.group + at % p.group} * kDim + first;
    auto* to = reinterpret_cast<uint32_t*>(&s.queries[column][first]);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      to[j] = column < item.num_columns ? *reinterpret_cast<const uint32_t*>(row + 2 * j) : 0;
    }
  }
  __syncthreads();
}

// Address of the 16 bytes with channels [8 * octet, 8 * octet + 8) of a stage's row.
template <int kDim>
__device__ inline uint8_t* octet_at(uint8_t* stage, int row, int octet) {
  return stage + row * (kDim * 2) + ((octet ^ (row % 8)) * 16);
}

// Iterates over the tokens of an item that a warp computes: 16 at a time, every kWarps-th tile.
template <int kDim>
class Walk {
 public:
  __device__ Walk(const Params& p, const Item& item, uint8_t (*stages)[kKeys * kDim * 2], int warp,
                  int lane)
      : p_(p), item_(item), stages_(stages), lane_(lane) {
    first_ = item.begin / kKeys * kKeys + warp * kKeys;
    num_steps_ =
        item.end > first_ ? (item.end - first_ + kWarps * kKeys - 1) / (kWarps * kKeys) : 0;
    next_row_ = find_row(0);
  }

  [[nodiscard]] __device__ int num_steps() const { return num_steps_; }

  [[nodiscard]] __device__ int token(int step) const { return first_ + step * kWarps * kKeys; }

  // Stage of load number `load`; a step has two loads, first keys, then values.
  [[nodiscard]] __device__ uint8_t* stage(int load) const {
    return stages_[load % Shared<kDim>::kStages];
  }

  // Starts load 2 * step (keys) or 2 * step + 1 (values) and commits a group of copies even if
  // there are no more tokens. Tokens that no column attends to become zeros: pages may contain
  // anything there.
  __device__ void start(int load) {
    if (load < 2 * num_steps_) {
      if (load % 2 == 0) {
        row_ = next_row_;
        next_row_ = find_row(load / 2 + 1);
      }
      const CudaBf16* pool = load % 2 == 0 ? p_.k : p_.v;
      uint8_t* to = stage(load);
      constexpr int kOctets = kDim / 8;
      constexpr int kRowsAtOnce = kWarp / kOctets > 0 ? kWarp / kOctets : 1;
#pragma unroll
      for (int i = 0; i < kKeys; i += kRowsAtOnce) {
        const int row = i + lane_ / kOctets % kRowsAtOnce;
        const int64_t from = __shfl_sync(kAll, row_, row);
#pragma unroll
        for (int first = 0; first < kOctets; first += kWarp) {
          const int octet = first + lane_ % kOctets;
          copy_async(octet_at<kDim>(to, row, octet), pool + (from < 0 ? 0 : from) + octet * 8,
                     from >= 0);
        }
      }
    }
    commit_copies();
  }

 private:
  // Index in the pool of the first element of token lane % 16 of a step; -1: no column attends to
  // the token.
  [[nodiscard]] __device__ int64_t find_row(int step) const {
    const int token = this->token(step) + lane_ % kKeys;
    if (token < item_.begin || token >= item_.end) return -1;
    return p_.pages.page_of(item_.sequence, token) * p_.page_stride +
           token % p_.pages.page_size * p_.token_stride + item_.kv_head * kDim;
  }

  const Params& p_;
  const Item& item_;
  uint8_t (*stages_)[kKeys * kDim * 2];
  int lane_;
  int first_, num_steps_;
  int64_t row_ = -1;       // index in the pool for the step that is being loaded
  int64_t next_row_ = -1;  // index for the step after it, looked up one step ahead
};

// The softmax of an item over the tokens of one warp. A lane has columns 2 * (lane % 4) and the
// next.
template <int kDim>
struct State {
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};  // sums of weights over the lane's tokens
  float output[kDim / 16][4];
};

template <int kDim>
__device__ inline void attend(const Params& p, const Item& item, const Shared<kDim>& s,
                              Walk<kDim>& walk, int lane, State<kDim>& state) {
  using S = Shared<kDim>;
  constexpr bool kShared = kDim > kMostForTwo;
#pragma unroll
  for (int load = 0; load < S::kStages - 1; ++load) walk.start(load);

  // Queries as second factors of a product: a lane has column lane / 4.
  uint32_t q[kShared ? 1 : kDim / 16][2];
  if constexpr (!kShared) {
    const int column = lane / 4;
    const int at = item.first + column;
    const CudaBf16* row = p.q + (p.batch.query_start[item.sequence] + at / p.group) * p.q_stride +
                          int64_t{item.kv_head * p.group + at % p.group} * kDim + lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        q[k][half] = column < item.num_columns
                         ? *reinterpret_cast<const uint32_t*>(row + k * 16 + half * 8)
                         : 0;
      }
    }
  }
  int begin[2], end[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int column = min(lane % 4 * 2 + i, item.num_columns - 1);
    end[i] = position_of(p, item.sequence, item.first + column) + 1;
    begin[i] = p.window > 0 ? max(0, end[i] - p.window) : 0;
  }
#pragma unroll
  for (int m = 0; m < kDim / 16; ++m) {
#pragma unroll
    for (int i = 0; i < 4; ++i) state.output[m][i] = 0;
  }

  for (int step = 0; step < walk.num_steps(); ++step) {
    // Computes the scores: rows are tokens, columns are the item's columns.
    wait_copies<S::kStages - 2>();
    __syncwarp();
    float scores[4] = {0, 0, 0, 0};
    uint8_t* keys = walk.stage(2 * step);
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      uint32_t a[4];
      load_matrices(a, octet_at<kDim>(keys, lane % 8 + lane / 8 % 2 * 8, k * 2 + lane / 16));
      if constexpr (kShared) {
        const CudaBf16* row = &s.queries[lane / 4][k * 16 + lane % 4 * 2];
        const uint32_t both[2] = {*reinterpret_cast<const uint32_t*>(row),
                                  *reinterpret_cast<const uint32_t*>(row + 8)};
        multiply_bf16(scores, a, both);
      } else {
        multiply_bf16(scores, a, q[k]);
      }
    }
    __syncwarp();
    walk.start(2 * step + S::kStages - 1);

    const int token = walk.token(step) + lane / 4;
    float shrink[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = token + half * 8;
        float& score = scores[half * 2 + i];
        score = at >= begin[i] && at < end[i] ? score * p.scale : -INFINITY;
      }
      float top = fmaxf(state.maximum[i], fmaxf(scores[i], scores[2 + i]));
#pragma unroll
      for (int distance = 4; distance < kWarp; distance *= 2) {
        top = fmaxf(top, __shfl_xor_sync(kAll, top, distance));
      }
      const float base = top == -INFINITY ? 0.0f : top;
      shrink[i] = exp2f(state.maximum[i] - base);
      state.maximum[i] = top;
      scores[i] = exp2f(scores[i] - base);
      scores[2 + i] = exp2f(scores[2 + i] - base);
      state.sum[i] = fmaf(state.sum[i], shrink[i], scores[i] + scores[2 + i]);
    }
    if (__any_sync(kAll, shrink[0] != 1.0f || shrink[1] != 1.0f)) {
#pragma unroll
      for (int m = 0; m < kDim / 16; ++m) {
#pragma unroll
        for (int i = 0; i < 4; ++i) state.output[m][i] *= shrink[i % 2];
      }
    }
    const uint32_t weights[2] = {transpose_matrix(pack_bf16(scores[0], scores[1])),
                                 transpose_matrix(pack_bf16(scores[2], scores[3]))};

    wait_copies<S::kStages - 2>();
    __syncwarp();
    uint8_t* values = walk.stage(2 * step + 1);
#pragma unroll
    for (int m = 0; m < kDim / 16; ++m) {
      uint32_t a[4];
      load_matrices_transposed(
          a, octet_at<kDim>(values, lane % 8 + lane / 16 * 8, m * 2 + lane / 8 % 2));
      multiply_bf16(state.output[m], a, weights);
    }
    __syncwarp();
    walk.start(2 * step + S::kStages);
  }
  wait_copies<0>();
#pragma unroll
  for (int i = 0; i < 2; ++i) {
#pragma unroll
    for (int distance = 4; distance < kWarp; distance *= 2) {
      state.sum[i] += __shfl_xor_sync(kAll, state.sum[i], distance);
    }
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads, kDim > kMostForTwo ? 1 : 2)
    split_kernel(const __grid_constant__ Params p) {
  extern __shared__ __align__(128) uint8_t raw[];
  auto& s = *reinterpret_cast<Shared<kDim>*>(raw);
  const int thread = static_cast<int>(threadIdx.x), warp = thread / kWarp, lane = thread % kWarp;
  make_plan(p, s.plan, s.scan);  // reads only lengths, which were uploaded with the step
  Items items(p, s.plan, static_cast<int>(blockIdx.x));
  Item item;
  bool is_open = items.next(item);
  if (is_open) fetch_context<kDim>(p, item);
  wait_for_inputs();
  if (blockIdx.x == 0) leave_plan(p, s.plan);
  for (; is_open; is_open = items.next(item)) {
    State<kDim> state;
    if constexpr (kDim > kMostForTwo) share_queries<kDim>(p, item, s);
    {
      Walk<kDim> walk(p, item, s.stages[warp], warp, lane);
      attend<kDim>(p, item, s, walk, lane, state);
    }
    if (lane < 4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        s.maxima[warp][lane * 2 + i] = state.maximum[i];
        s.sums[warp][lane * 2 + i] = state.sum[i];
      }
    }
    __syncthreads();  // all warps have finished with their stages
#pragma unroll
    for (int m = 0; m < kDim / 16; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        s.results[warp][lane % 4 * 2 + i % 2][m * 16 + lane / 4 + i / 2 * 8] = state.output[m][i];
      }
    }
    __syncthreads();

    // The warps' results are added in order.
    const int base_part = item.part < 0 ? -1 : item.part * kColumns;
    for (int column = warp; column < item.num_columns; column += kWarps) {
      float top = s.maxima[0][column];
#pragma unroll
      for (int w = 1; w < kWarps; ++w) top = fmaxf(top, s.maxima[w][column]);
      const float base = top == -INFINITY ? 0.0f : top;
      float shares[kWarps];
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        shares[w] = exp2f(s.maxima[w][column] - base);
        sum = fmaf(s.sums[w][column], shares[w], sum);
      }
      const int at = item.first + column;
      const int head = item.kv_head * p.group + at % p.group;
      const float factor = base_part < 0 ? output_factor(p, head, top, sum) : 1.0f;
#pragma unroll
      for (int c = lane * 2; c < kDim; c += kWarp * 2) {
        float2 total{0, 0};
#pragma unroll
        for (int w = 0; w < kWarps; ++w) {
          const float2 part = *reinterpret_cast<const float2*>(&s.results[w][column][c]);
          total.x = fmaf(part.x, shares[w], total.x);
          total.y = fmaf(part.y, shares[w], total.y);
        }
        if (base_part < 0) {
          CudaBf16* y = p.y + (p.batch.query_start[item.sequence] + at / p.group) * p.y_stride +
                        int64_t{head} * kDim + c;
          *reinterpret_cast<uint32_t*>(y) = pack_bf16(total.x * factor, total.y * factor);
        } else {
          *reinterpret_cast<float2*>(p.parts.outputs + int64_t{base_part + column} * kDim + c) =
              total;
        }
      }
      if (base_part >= 0 && lane == 0) {
        p.parts.maxima[base_part + column] = top;
        p.parts.sums[base_part + column] = sum;
      }
    }
    __syncthreads();  // waits before the stages are written again
  }
}

int num_blocks(const CudaContext& context, int64_t head_dim) {
  const int each = head_dim > kMostForTwo ? 1 : 2;
  return std::min(kSplitBlocks, each * context.gpu.properties().num_multiprocessors);
}

template <int kDim>
Status launch_split(CudaContext& context, Params params) {
  const int blocks = num_blocks(context, kDim);
  params.heads_on_line = heads_on_a_line(params.num_kv_heads, blocks);
  params.num_shares = blocks / params.heads_on_line;
  HEDDLE_RETURN_IF_ERROR(allow_shared(split_kernel<kDim>, sizeof(Shared<kDim>)));
  HEDDLE_RETURN_IF_ERROR(launch(context, "paged_attention split", split_kernel<kDim>,
                                grid_of(params.num_shares * params.heads_on_line), kThreads, params,
                                sizeof(Shared<kDim>)));
  return launch_join(context, params, kDim);
}

}  // namespace
}  // namespace split_attention

bool paged_attention_split_takes(const CudaContext& context, const AttentionForm& form) {
  const int64_t D = form.head_dim;
  const bool has_room = D != 512 || context.gpu.properties().shared_bytes >=
                                        static_cast<int64_t>(sizeof(split_attention::Shared<512>));
  return has_room && !context.exact && !context.plain_attention &&
         (D == 64 || D == 128 || D == 256 || D == 512) && form.value_dim == D && !form.is_latent &&
         form.activations == DType::kBf16 && form.pages == DType::kBf16;
}

bool paged_attention_split_fits(const CudaContext& context, const PagedAttentionArgs& args) {
  if (!paged_attention_split_takes(context, AttentionForm::of(args))) return false;
  const ForwardContext& forward = *args.forward;
  if (forward.num_sequences() > kSplitSequences) return false;
  // The plan counts the tiles of all units in 32 bits.
  const int64_t tiles = forward.batch.page_table_width * forward.page_size / kTileTokens;
  const int64_t lines =
      args.num_kv_heads / heads_on_a_line(static_cast<int>(args.num_kv_heads),
                                          split_attention::num_blocks(context, args.head_dim));
  const int64_t group = args.q.shape[1] / (args.num_kv_heads * args.head_dim);
  const int64_t units =
      (args.q.shape[0] * group / split_attention::kColumns + forward.num_sequences()) * lines;
  if ((tiles + kUnitCost + 1) * units > std::numeric_limits<int32_t>::max()) return false;
  const auto is_aligned = [](const void* data, int64_t stride, int64_t bytes) {
    return reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(bytes) == 0 &&
           stride * 2 % bytes == 0;
  };
  return is_aligned(args.q.data, args.q.row_stride, 4) &&
         is_aligned(args.y.data, args.y.row_stride, 4) &&
         is_aligned(args.kv.k.data, args.kv.k.row_stride, 16) &&
         is_aligned(args.kv.v.data, args.kv.v.row_stride, 16) &&
         args.kv.k.row_stride == args.kv.v.row_stride;
}

Status paged_attention_split(CudaContext& context, const PagedAttentionArgs& args,
                             int64_t most_tokens) {
  using split_attention::kLog2E;
  using split_attention::launch_split;
  using split_attention::Params;
  using split_attention::Parts;
  const int64_t D = args.head_dim;
  Parts parts{.maxima = reinterpret_cast<float*>(args.workspace.data())};
  parts.sums = parts.maxima + kSplitParts;
  parts.outputs = parts.sums + kSplitParts;
  parts.plan = reinterpret_cast<split_attention::Plan*>(parts.outputs + kSplitParts * D);
  const int64_t num_rows = args.q.shape[0];
  const Params params{.q = args.q.as<CudaBf16>(),
                      .k = args.kv.k.as<CudaBf16>(),
                      .v = args.kv.v.as<CudaBf16>(),
                      .y = args.y.as<CudaBf16>(),
                      .sinks = args.sinks.as<float>(),
                      .q_stride = args.q.row_stride,
                      .y_stride = args.y.row_stride,
                      .page_stride = args.kv.k.row_stride,
                      .token_stride = args.num_kv_heads * D,
                      .pages = page_table_of(*args.forward, args.kv.table),
                      .batch = args.forward->batch,
                      .num_sequences = static_cast<int32_t>(args.forward->num_sequences()),
                      .num_rows = static_cast<int32_t>(num_rows),
                      .most_tokens = static_cast<int32_t>(std::min(most_tokens, num_rows)),
                      .num_kv_heads = static_cast<int32_t>(args.num_kv_heads),
                      .group = static_cast<int32_t>(args.q.shape[1] / (args.num_kv_heads * D)),
                      .window = static_cast<int32_t>(args.window),
                      .scale = args.scale * args.kv.k_scale * kLog2E,
                      .v_scale = args.kv.v_scale,
                      .parts = parts};
  if (D == 64) return launch_split<64>(context, params);
  if (D == 128) return launch_split<128>(context, params);
  if (D == 256) return launch_split<256>(context, params);
  return launch_split<512>(context, params);
}

}  // namespace heddle::ops
