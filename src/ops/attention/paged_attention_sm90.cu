// SPDX-License-Identifier: Apache-2.0
// softmax(scale Q K') V on Hopper's tensor cores: bf16 factors, fp32 sums, one online softmax a
// row. A block computes 128 rows (token, query head) of one sequence and kv head, over all tokens
// that they attend to, in tiles of 128 tokens, or 64 for D = 256. One warp loads, each lane one
// box. Each of two warpgroups computes 64 rows, a warp 16 of them; a thread has a quarter of the
// columns of two rows. Flops: 4 * D a pair of a row and a token. Bytes: keys and values once a
// block, mostly from the cache. Used in fast mode for sequences of at least 128 / (Nq / Nkv) new
// tokens without trees: everything bf16, D of 64, 128 or 256 (paged_attention_sm90_fits()).
#include <algorithm>
#include <cfloat>

#include <cuda.h>

#include "ops/attention/paged_attention_sm90.h"
#include "ops/attention/paged_attention_split.h"
#include "ops/attention/paged_attention_unit.h"
#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/page_table.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/sm90/bulk_copy.cuh"
#include "ops/cuda/sm90/mbarrier.cuh"
#include "ops/cuda/sm90/tensor_map.h"
#include "ops/cuda/sm90/tiles.cuh"
#include "ops/cuda/sm90/wgmma.cuh"

namespace heddle::ops {

namespace {

using sm90::group_barrier;
using sm90::kTileBytes;
using sm90::kWarpgroup;
using sm90::swizzled;

constexpr int kGroups = 2;  // warpgroups that multiply, each 64 rows
constexpr int kThreads = (kGroups + 1) * kWarpgroup;
// Registers a thread; 168 on average.
constexpr int kProducerRegisters = 24, kConsumerRegisters = 240;
constexpr int kLeastPage = 8;  // least tokens of a page: the swizzle repeats after 8 rows
constexpr float kLog2E = 1.4426950408889634f;

// Tokens per tile of keys and values; tiles are aligned to it.
constexpr int tile_tokens(int64_t head_dim) { return head_dim > 128 ? 64 : 128; }

struct Params {
  CUtensorMap keys;    // boxes of 64 channels and up to a page of tokens, of the whole pool
  CUtensorMap values;  // boxes like those of `keys`, of the value pool
  const CudaBf16* q;
  CudaBf16* y;
  const float* sinks;  // attention sinks; null: the layer has none
  int64_t q_stride, y_stride;
  PageTable pages;
  DeviceBatch batch;
  int32_t num_sequences;
  int32_t num_units;  // upper bound of the batch's units for each of the `columns`
  int32_t columns;    // kv heads times the groups that their query heads are divided into
  int32_t head_chunks, heads_per_unit, group;
  int32_t tokens_per_unit, min_tokens;
  int32_t window;    // tokens that a row attends to; 0: all
  int32_t box_rows;  // tokens in a box of the tensor map
  float scale, v_scale;
};

template <int kDim>
struct Shared {
  static constexpr int kKeys = tile_tokens(kDim);
  static constexpr int kStages = kDim == 256 ? 2 : kDim == 128 ? 3 : 4;
  static constexpr int kBlocks = kDim / 64;        // blocks of 64 channels in a head
  static constexpr int kBlockBytes = kKeys * 128;  // bytes of a block of 64 channels in a tile

  using Tile = uint8_t[kBlocks][kBlockBytes];

  uint8_t q[kGroups][kBlocks][kTileBytes];  // queries; later the rows of y
  Tile k[kStages];
  Tile v[kStages];
  sm90::Barrier k_full[kStages], k_empty[kStages];
  sm90::Barrier v_full[kStages], v_empty[kStages];
  int sequence;  // index of the sequence; -1: the block has no work
};

// The rows that a block computes: row r is token r / heads, query head r % heads.
struct Unit {
  int sequence;
  int first_token;     // index of the unit's first row among the rows of the step
  int first_position;  // position of the first row in its sequence
  int num_tokens, num_rows;
  int kv_head, first_head, heads;
  TokenRange seen;  // tokens that at least one row attends to
};

// Finds the unit of a block. Units of sequence b start at index query_start[b] / tokens_per_unit +
// b, which is past the previous sequence's last unit: the index determines the sequence.
__device__ inline int find_sequence(const Params& p, int place, int thread) {
  for (int b = thread; b < p.num_sequences; b += kThreads) {
    const int begin = p.batch.query_start[b], end = p.batch.query_start[b + 1];
    const int unit = place - (begin / p.tokens_per_unit + b);
    const bool has = unit >= 0 && unit * p.tokens_per_unit < end - begin;
    if (has && end - begin >= p.min_tokens) return b;
  }
  return -1;
}

__device__ inline Unit unit_of(const Params& p, int sequence, int place, int column) {
  const int begin = p.batch.query_start[sequence];
  const int skipped = (place - (begin / p.tokens_per_unit + sequence)) * p.tokens_per_unit;
  const int chunk = column % p.head_chunks * p.heads_per_unit;
  Unit unit;
  unit.sequence = sequence;
  unit.first_token = begin + skipped;
  unit.first_position = p.batch.context_lens[sequence] + skipped;
  unit.num_tokens = min(p.tokens_per_unit, p.batch.query_start[sequence + 1] - unit.first_token);
  unit.kv_head = column / p.head_chunks;
  unit.first_head = unit.kv_head * p.group + chunk;
  unit.heads = min(p.heads_per_unit, p.group - chunk);
  unit.num_rows = unit.num_tokens * unit.heads;
  unit.seen = {.begin = p.window > 0 ? max(0, unit.first_position - p.window + 1) : 0,
               .end = unit.first_position + unit.num_tokens};
  return unit;
}

// The producer: a warp whose lanes each copy one box of a tile.
template <int kDim>
__device__ inline void load_tiles(const Params& p, Shared<kDim>& s, const Unit& unit, int lane) {
  using S = Shared<kDim>;
  const int boxes = S::kKeys / p.box_rows;  // boxes of 64 channels in a tile
  const int box = lane / S::kBlocks, block = lane % S::kBlocks;
  const int64_t page_size = p.pages.page_size;
  const int first = static_cast<int>(unit.seen.begin) / S::kKeys;
  const int end = (static_cast<int>(unit.seen.end) - 1) / S::kKeys + 1;
  for (int tile = first; tile < end; ++tile) {
    const int64_t token = int64_t{tile} * S::kKeys + box * p.box_rows;
    // Tokens that no row attends to are not read: their page ids may be arbitrary.
    const bool has = box < boxes && token < unit.seen.end && token + p.box_rows > unit.seen.begin;
    const int row = has ? static_cast<int>(p.pages.page_of(unit.sequence, token) * page_size +
                                           token % page_size)
                        : 0;
    const auto bytes = static_cast<uint32_t>(__popc(__ballot_sync(~0u, has)) * p.box_rows * 128);
    const int stage = (tile - first) % S::kStages;
    const uint32_t parity = ((tile - first) / S::kStages + 1) % 2;
    const int channel = unit.kv_head * kDim + block * 64;
    sm90::wait(s.k_empty[stage], parity);
    if (lane == 0) sm90::arrive_expecting(s.k_full[stage], bytes);
    __syncwarp();
    if (has) {
      sm90::copy_box(s.k[stage][block] + box * p.box_rows * 128, p.keys, channel, row,
                     s.k_full[stage]);
    }
    sm90::wait(s.v_empty[stage], parity);
    if (lane == 0) sm90::arrive_expecting(s.v_full[stage], bytes);
    __syncwarp();
    if (has) {
      sm90::copy_box(s.v[stage][block] + box * p.box_rows * 128, p.values, channel, row,
                     s.v_full[stage]);
    }
  }
}

__device__ inline float exp2_of(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ inline float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
  return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

__device__ inline float quad_sum(float x) {
  x += __shfl_xor_sync(~0u, x, 1);
  return x + __shfl_xor_sync(~0u, x, 2);
}

// Advances a descriptor by `step` times 16 elements along the rows of a tile, whose blocks of 64
// columns are `block_bytes` apart.
__device__ inline uint64_t along_blocks(uint64_t descriptor, int step, int block_bytes) {
  return descriptor + step / 4 * (block_bytes >> 4) + step % 4 * (32 >> 4);
}

// The two rows that a thread has of its warpgroup's 64, and the state of each row's softmax.
struct RowPair {
  int begin[2], end[2];  // range of tokens that each row attends to
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};  // sums over the columns that this thread has
  float shrink[2];
};

// Turns the scores of the tile that begins at token `first` into exp(score - maximum), and computes
// the factors by which the rows' earlier sums must be multiplied.
template <bool kMasked, int kCount>
__device__ inline void soften(float (&s)[kCount], RowPair& rows, int first, float scale, int lane) {
  if constexpr (kMasked) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int token = first + i / 4 * 8 + lane % 4 * 2 + i % 2;
      const int row = i / 2 % 2;
      if (token < rows.begin[row] || token >= rows.end[row]) s[i] = -INFINITY;
    }
  }
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    float top = rows.maximum[row];
#pragma unroll
    for (int i = 2 * row; i < kCount; i += 4) top = fmaxf(top, fmaxf(s[i], s[i + 1]));
    top = quad_max(top);
    // A row that has not seen a token yet has earlier sums of 0; its exp2(-infinity) is 0, too.
    const float base = (top == -INFINITY ? 0.0f : top) * scale;
    rows.shrink[row] = exp2_of(fmaf(rows.maximum[row], scale, -base));
    rows.maximum[row] = top;
    float sum = 0;
#pragma unroll
    for (int i = 2 * row; i < kCount; i += 4) {
      s[i] = exp2_of(fmaf(s[i], scale, -base));
      s[i + 1] = exp2_of(fmaf(s[i + 1], scale, -base));
      sum += s[i] + s[i + 1];
    }
    rows.sum[row] = fmaf(rows.sum[row], rows.shrink[row], sum);
  }
}

// Zeroes the values of tokens that no row attends to: pages may contain anything there, even NaN,
// and 0 times NaN is not 0.
template <int kDim>
__device__ inline void clear_unseen(typename Shared<kDim>::Tile& v, int begin, int end,
                                    int thread) {
  using S = Shared<kDim>;
  constexpr int kPieces = S::kBlockBytes / 16;
  for (int at = thread; at < S::kBlocks * kPieces; at += kWarpgroup) {
    const int token = at % kPieces / 8;
    if (token >= begin && token < end) continue;
    reinterpret_cast<uint4*>(v[at / kPieces])[at % kPieces] = uint4{0, 0, 0, 0};
  }
  sm90::fence_async_proxy();
}

// Computes a warpgroup's 64 rows of the unit.
template <int kDim>
__device__ inline void attend(const Params& p, Shared<kDim>& s, const Unit& unit, int group) {
  using S = Shared<kDim>;
  constexpr int kKeys = S::kKeys;
  constexpr int kSteps = kKeys / 16;          // steps of the product with the values
  constexpr int kParts = kDim > 128 ? 2 : 1;  // parts that the output's columns are divided into
  constexpr int kPart = kDim / kParts / 2;    // numbers that a thread has in each part
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int warp = thread / kWarp, lane = thread % kWarp;

  // Loads the queries; rows beyond the unit's become zeros.
  constexpr int kOctets = kDim / 8;
  for (int at = thread; at < 64 * kOctets; at += kWarpgroup) {
    const int row = at / kOctets, c = at % kOctets * 8;
    const int r = 64 * group + row;
    uint4 octet{0, 0, 0, 0};
    if (r < unit.num_rows) {
      const CudaBf16* q = p.q + (unit.first_token + r / unit.heads) * p.q_stride +
                          int64_t{unit.first_head + r % unit.heads} * kDim;
      octet = *reinterpret_cast<const uint4*>(q + c);
    }
    *reinterpret_cast<uint4*>(swizzled(s.q[group][c / 64], row, c % 64)) = octet;
  }
  sm90::fence_async_proxy();
  group_barrier(group);

  RowPair rows;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int r = 64 * group + 16 * warp + lane / 4 + 8 * i;
    const int token = r < unit.num_rows ? r / unit.heads : 0;
    rows.end[i] = unit.first_position + token + 1;
    rows.begin[i] = p.window > 0 ? max(0, rows.end[i] - p.window) : 0;
  }
  const int begin = static_cast<int>(unit.seen.begin), end = static_cast<int>(unit.seen.end);
  const int first_tile = begin / kKeys, last_tile = (end - 1) / kKeys;
  const float scale = p.scale * kLog2E;
  // All rows attend to all tokens of the tiles between all_from and all_until.
  const int all_from = p.window > 0 ? max(0, end - p.window) : 0;
  const int all_until = unit.first_position + 1;

  float scores[kKeys / 2];
  float o[kParts][kPart];
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < kPart; ++i) o[part][i] = 0;
  }
  uint32_t weights[kSteps][4];

  const auto stage_of = [&](int tile) { return (tile - first_tile) % S::kStages; };
  const auto parity_of = [&](int tile) {
    return static_cast<uint32_t>((tile - first_tile) / S::kStages % 2);
  };
  const auto score = [&](int tile) {
    const uint64_t a = sm90::rows_along_k(s.q[group][0], 0);
    const uint64_t b = sm90::rows_along_k(s.k[stage_of(tile)][0], 0);
#pragma unroll
    for (int k = 0; k < kDim / 16; ++k) {
      sm90::product(scores, along_blocks(a, k, kTileBytes), along_blocks(b, k, S::kBlockBytes),
                    k > 0);
    }
    sm90::products_commit();
  };
  const auto add_values = [&](int tile) {
    auto& v = s.v[stage_of(tile)];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const uint64_t b = sm90::rows_along_n(v[2 * part], 0, S::kBlockBytes);
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        if constexpr (kDim == 64) {
          sm90::product_n64<true>(o[part], weights[step], sm90::further_along_n(b, step), true);
        } else {
          sm90::product_n128<true>(o[part], weights[step], sm90::further_along_n(b, step), true);
        }
      }
    }
    sm90::products_commit();
  };
  // Computes the softmax of the tile whose scores are ready. Before its weights are packed, it
  // waits for the products with the values of the previous tile, whose stage is then free.
  const auto turn_to_weights = [&](int tile) {
    const int first = tile * kKeys;
    if (first >= all_from && first + kKeys <= all_until) {
      soften<false>(scores, rows, first, scale, lane);
    } else {
      soften<true>(scores, rows, first, scale, lane);
    }
    sm90::products_wait<0>();
#pragma unroll
    for (int part = 0; part < kParts; ++part) sm90::settle(o[part]);
    if (thread == 0 && tile > first_tile) sm90::arrive(s.v_empty[stage_of(tile - 1)]);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) sm90::pack_step(scores, step, weights[step]);
    if (__any_sync(~0u, rows.shrink[0] != 1.0f || rows.shrink[1] != 1.0f)) {
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
#pragma unroll
        for (int i = 0; i < kPart; ++i) o[part][i] *= rows.shrink[i / 2 % 2];
      }
    }
    sm90::wait(s.v_full[stage_of(tile)], parity_of(tile));
    if (first < begin || first + kKeys > end) {
      clear_unseen<kDim>(s.v[stage_of(tile)], begin - first, end - first, thread);
      group_barrier(group);
    }
  };

  sm90::wait(s.k_full[0], 0);
  sm90::products_fence();
  score(first_tile);
  sm90::products_wait<0>();
  sm90::settle(scores);
  if (thread == 0) sm90::arrive(s.k_empty[0]);
  for (int tile = first_tile; tile < last_tile; ++tile) {
    turn_to_weights(tile);
    sm90::wait(s.k_full[stage_of(tile + 1)], parity_of(tile + 1));
    sm90::products_fence();
    score(tile + 1);
    add_values(tile);
    sm90::products_wait<1>();
    sm90::settle(scores);
    if (thread == 0) sm90::arrive(s.k_empty[stage_of(tile + 1)]);
  }
  turn_to_weights(last_tile);
  sm90::products_fence();
  add_values(last_tile);
  sm90::products_wait<0>();
#pragma unroll
  for (int part = 0; part < kParts; ++part) sm90::settle(o[part]);

  // Adds the sink's share to the sum, both relative to the larger exponent.
  float factor[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float sum = quad_sum(rows.sum[i]);
    factor[i] = 1.0f / sum;
    if (p.sinks != nullptr) {
      const int r = 64 * group + 16 * warp + lane / 4 + 8 * i;
      const float sink = p.sinks[unit.first_head + r % unit.heads] * kLog2E;
      const float maximum = rows.maximum[i] * scale;
      const float top = fmaxf(maximum, sink);
      const float share = exp2_of(maximum - top);
      factor[i] = share / fmaf(sum, share, exp2_of(sink - top));
    }
    factor[i] *= p.v_scale;
  }
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
#pragma unroll
    for (int i = 0; i < kPart; i += 2) {
      const int row = 16 * warp + lane / 4 + 8 * (i / 2 % 2);
      const int column = part * 128 + i / 4 * 8 + lane % 4 * 2;
      const float f = factor[i / 2 % 2];
      *reinterpret_cast<uint32_t*>(swizzled(s.q[group][column / 64], row, column % 64)) =
          sm90::pack(o[part][i] * f, o[part][i + 1] * f);
    }
  }
  group_barrier(group);
  for (int at = thread; at < 64 * kOctets; at += kWarpgroup) {
    const int row = at / kOctets, c = at % kOctets * 8;
    const int r = 64 * group + row;
    if (r >= unit.num_rows) break;
    CudaBf16* y = p.y + (unit.first_token + r / unit.heads) * p.y_stride +
                  int64_t{unit.first_head + r % unit.heads} * kDim;
    *reinterpret_cast<uint4*>(y + c) =
        *reinterpret_cast<const uint4*>(swizzled(s.q[group][c / 64], row, c % 64));
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads, 1) attend_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  extern __shared__ __align__(1024) uint8_t raw[];
  using S = Shared<kDim>;
  S& s = *reinterpret_cast<S*>(raw);
  const int thread = static_cast<int>(threadIdx.x);
  const int column = static_cast<int>(blockIdx.x) % p.columns;
  // Longest units first.
  const int place = p.num_units - 1 - static_cast<int>(blockIdx.x) / p.columns;
  if (thread == 0) {
    s.sequence = -1;
    for (int i = 0; i < S::kStages; ++i) {
      sm90::init(s.k_full[i], 1);
      sm90::init(s.v_full[i], 1);
      sm90::init(s.k_empty[i], kGroups);
      sm90::init(s.v_empty[i], kGroups);
    }
    sm90::publish_barriers();
  }
  __syncthreads();
  const int found = find_sequence(p, place, thread);
  if (found >= 0) s.sequence = found;
  __syncthreads();
  if (s.sequence < 0) return;
  const Unit unit = unit_of(p, s.sequence, place, column);
  if (thread >= kGroups * kWarpgroup) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    if (thread < kGroups * kWarpgroup + kWarp) load_tiles<kDim>(p, s, unit, thread % kWarp);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    attend<kDim>(p, s, unit, thread / kWarpgroup);
  }
}

template <int kDim>
Status launch_attend(CudaContext& context, const Params& params) {
  HEDDLE_RETURN_IF_ERROR(allow_shared(attend_kernel<kDim>, sizeof(Shared<kDim>)));
  return launch(context, "paged_attention tensor cores", attend_kernel<kDim>,
                grid_of(int64_t{params.num_units} * params.columns), kThreads, params,
                sizeof(Shared<kDim>));
}

int64_t group_of(const PagedAttentionArgs& args) {
  return args.q.shape[1] / (args.num_kv_heads * args.head_dim);
}

// The pool as a matrix with one row for each token, page after page.
TensorView token_rows(const PagedAttentionArgs& args, const MutableTensorView& pool) {
  const int64_t width = args.num_kv_heads * args.head_dim;
  return {pool.data, DType::kBf16, Shape{pool.shape[0] * args.forward->page_size, width}, width};
}

bool is_aligned(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

}  // namespace

int64_t paged_attention_sm90_min_tokens(const PagedAttentionArgs& args) {
  return ceil_div(kSm90AttentionRows, group_of(args));
}

bool paged_attention_sm90_takes(const CudaContext& context, const AttentionForm& form) {
  constexpr int64_t kWidest = 256;
  if (context.gpu.properties().major != 9 || form.head_dim > kWidest ||
      !paged_attention_split_takes(context, form)) {
    return false;
  }
  const int64_t page = form.page_size, tile = tile_tokens(form.head_dim);
  return page >= kLeastPage && (tile % page == 0 || page % tile == 0);
}

bool paged_attention_sm90_fits(const CudaContext& context, const PagedAttentionArgs& args) {
  if (!paged_attention_sm90_takes(context, AttentionForm::of(args))) return false;
  if (!is_aligned(args.q.data, args.q.row_stride) || !is_aligned(args.y.data, args.y.row_stride)) {
    return false;
  }
  const int64_t D = args.head_dim, page = args.forward->page_size;
  for (const MutableTensorView& pool : {args.kv.k, args.kv.v}) {
    if (pool.row_stride != page * args.num_kv_heads * D) return false;
    if (!sm90::can_map(token_rows(args, pool))) return false;
  }
  return true;
}

Status paged_attention_sm90(CudaContext& context, const PagedAttentionArgs& args) {
  const int64_t D = args.head_dim;
  const int64_t group = group_of(args);
  const int64_t heads = std::min(group, kSm90AttentionRows);
  const int64_t chunks = ceil_div(group, heads);
  const int64_t tokens = kSm90AttentionRows / heads;
  const int64_t num_sequences = args.forward->num_sequences();
  const int64_t box_rows = std::min<int64_t>(args.forward->page_size, tile_tokens(D));
  Params params{.keys = {},
                .values = {},
                .q = args.q.as<CudaBf16>(),
                .y = args.y.as<CudaBf16>(),
                .sinks = args.sinks.as<float>(),
                .q_stride = args.q.row_stride,
                .y_stride = args.y.row_stride,
                .pages = page_table_of(*args.forward, args.kv.table),
                .batch = args.forward->batch,
                .num_sequences = static_cast<int32_t>(num_sequences),
                .num_units = static_cast<int32_t>(args.q.shape[0] / tokens + num_sequences),
                .columns = static_cast<int32_t>(args.num_kv_heads * chunks),
                .head_chunks = static_cast<int32_t>(chunks),
                .heads_per_unit = static_cast<int32_t>(heads),
                .group = static_cast<int32_t>(group),
                .tokens_per_unit = static_cast<int32_t>(tokens),
                .min_tokens = static_cast<int32_t>(paged_attention_sm90_min_tokens(args)),
                .window = static_cast<int32_t>(args.window),
                .box_rows = static_cast<int32_t>(box_rows),
                .scale = args.scale * args.kv.k_scale,
                .v_scale = args.kv.v_scale};
  HEDDLE_RETURN_IF_ERROR(
      sm90::map_boxes(token_rows(args, args.kv.k), static_cast<int>(box_rows), params.keys));
  HEDDLE_RETURN_IF_ERROR(
      sm90::map_boxes(token_rows(args, args.kv.v), static_cast<int>(box_rows), params.values));
  if (D == 64) return launch_attend<64>(context, params);
  if (D == 128) return launch_attend<128>(context, params);
  return launch_attend<256>(context, params);
}

}  // namespace heddle::ops
