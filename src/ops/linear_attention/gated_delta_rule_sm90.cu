// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <type_traits>

#include <cuda.h>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/sm90/bulk_copy.cuh"
#include "ops/cuda/sm90/mbarrier.cuh"
#include "ops/cuda/sm90/tensor_map.h"
#include "ops/cuda/sm90/tiles.cuh"
#include "ops/cuda/sm90/wgmma.cuh"
#include "ops/linear_attention/gated_delta_rule_sm90.h"
#include "ops/linear_attention/snapshot_rows.cuh"

namespace heddle::ops {

namespace {

using sm90::group_barrier;
using sm90::kTileBytes;
using sm90::kWarpgroup;
using sm90::swizzled;

constexpr int kTokens = 64;  // of a chunk
constexpr int kWidth = 128;  // Dk = Dv
constexpr int kHalf = 64;    // value channels that one warpgroup owns

// A run of at most 64 tokens of one sequence that is computed at once. A snapshot ends one.
struct Chunk {
  int32_t first_row;
  int32_t num_rows;
  int32_t snapshot_slot;  // gets the state behind this chunk, -1: none
  int32_t unused;
};

// The results of `prepare` that `scan` reads, for one value head of one chunk.
struct Factors {
  uint8_t t[kTileBytes];       // T, swizzled: row i, column j
  uint8_t p[kTileBytes];       // P likewise
  float value_scale[kTokens];  // exp(Gc_i) r_k,i
  float query_scale[kTokens];  // exp(Gc_i) r_q,i
  float key_scale[kTokens];    // exp(Gc_last - Gc_i) r_k,i
  float state_scale;           // exp(Gc_last)
  Chunk chunk;
  int32_t padding[59];  // a copy starts at a multiple of 1024 bytes
};

static_assert(sizeof(Factors) == 2 * kTileBytes + 1024);

struct Params {
  DeviceBatch batch;
  int32_t num_sequences;  // of the batch
  int32_t num_scanned;    // of them, that have rows enough
  int32_t num_key_heads;
  int32_t num_value_heads;
  const float* a;
  const float* b;
  const float* neg_exp_a_log;
  const float* dt_bias;
  int64_t a_stride, b_stride;
  CudaBf16* y;
  int64_t y_stride;
  float* state;  // working slots [slots, Nv, Dv, Dk]
  int64_t state_stride;
  SnapshotMatrices snapshots;
  Chunk* chunks;
  int32_t* chunk_start;  // [num_scanned + 1]
  int32_t* scanned;      // [num_scanned]: sequences
  int32_t* num_listed;   // num_scanned without padding
  Factors* factors;      // [chunk, value head]
  CUtensorMap qkv;       // boxes of 64 rows and 64 columns
};

// --- plan ---

// Chunks of a sequence up to its `count`-th token after `from`.
__host__ __device__ inline int32_t chunks_between(int32_t from, int32_t to) {
  return (to - from + kTokens - 1) / kTokens;
}

// Rows of a sequence up to a snapshot, or behind the last one: they begin a chunk of their own.
struct Stretch {
  int32_t from = 0;
  int32_t to = 0;
  int32_t snapshot_slot = -1;

  // Number i of sequence b, which has one more than snapshots; without rows behind them.
  __device__ static Stretch of(const DeviceBatch& batch, int32_t b, int32_t i) {
    const StateSnapshot* snapshots = batch.snapshots + batch.snapshot_start[b];
    const int32_t num_snapshots = batch.snapshot_start[b + 1] - batch.snapshot_start[b];
    if (i > num_snapshots) return {};
    Stretch stretch{.from = i > 0 ? snapshots[i - 1].num_tokens : 0,
                    .to = batch.query_start[b + 1] - batch.query_start[b]};
    if (i < num_snapshots) {
      stretch.to = snapshots[i].num_tokens;
      stretch.snapshot_slot = snapshots[i].slot;
    }
    return stretch;
  }

  [[nodiscard]] __device__ int32_t num_chunks() const { return chunks_between(from, to); }
};

// A warp lists the chunks of a sequence; a lane looks up every 32nd stretch. Returns their number;
// without `chunks` it only counts them.
__device__ inline int32_t list_chunks(const DeviceBatch& batch, int32_t b, Chunk* chunks,
                                      int lane) {
  const int32_t first_row = batch.query_start[b];
  const int32_t num_stretches = batch.snapshot_start[b + 1] - batch.snapshot_start[b] + 1;
  int32_t num_chunks = 0;
  for (int32_t first = 0; first < num_stretches; first += kWarp) {
    const Stretch own = Stretch::of(batch, b, first + lane);
    if (chunks == nullptr) {
      num_chunks += __reduce_add_sync(0xffffffffu, own.num_chunks());
      continue;
    }
    for (int32_t i = 0; i < min(kWarp, num_stretches - first); ++i) {
      const Stretch stretch{.from = __shfl_sync(0xffffffffu, own.from, i),
                            .to = __shfl_sync(0xffffffffu, own.to, i),
                            .snapshot_slot = __shfl_sync(0xffffffffu, own.snapshot_slot, i)};
      const int32_t count = stretch.num_chunks();
      for (int32_t c = lane; c < count; c += kWarp) {
        const int32_t start = stretch.from + c * kTokens;
        chunks[num_chunks + c] = {.first_row = first_row + start,
                                  .num_rows = min(kTokens, stretch.to - start),
                                  .snapshot_slot = c == count - 1 ? stretch.snapshot_slot : -1};
      }
      num_chunks += count;
    }
  }
  return num_chunks;
}

// Lists the chunks of all sequences that have rows enough: one block, a warp a sequence. Launched
// once an op; the lists are small.
__global__ void __launch_bounds__(1024) plan_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ int32_t total;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int num_warps = static_cast<int>(blockDim.x) / kWarp;
  if (threadIdx.x == 0) {
    int32_t count = 0;
    for (int32_t b = 0; b < p.num_sequences; ++b) {
      const int32_t rows = p.batch.query_start[b + 1] - p.batch.query_start[b];
      if (rows >= kSm90MinRows && p.batch.state_slots[b] >= 0) p.scanned[count++] = b;
    }
    *p.num_listed = count;
    total = count;
  }
  __syncthreads();
  for (int32_t item = warp; item < total; item += num_warps) {
    const int32_t num_chunks = list_chunks(p.batch, p.scanned[item], nullptr, lane);
    if (lane == 0) p.chunk_start[item + 1] = num_chunks;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    p.chunk_start[0] = 0;
    for (int32_t item = 0; item < total; ++item) p.chunk_start[item + 1] += p.chunk_start[item];
  }
  __syncthreads();
  for (int32_t item = warp; item < total; item += num_warps) {
    list_chunks(p.batch, p.scanned[item], p.chunks + p.chunk_start[item], lane);
  }
}

// --- prepare ---

constexpr int kPitch = 68;  // floats from one row of a 64 x 64 matrix to the next
constexpr int kPrepareThreads = 2 * kWarpgroup;
constexpr int kMostHeadsPerKey = 8;  // value heads that read one key head

using Matrix = float[kTokens][kPitch];

struct PrepareShared {
  union {
    struct {
      uint8_t k[2][kTileBytes];
      uint8_t q[2][kTileBytes];
    };

    struct {              // once the products are formed
      Matrix similarity;  // (k_i . k_j) r_k,i r_k,j below the diagonal
      Matrix attention;   // q^_i . k^_j up to the diagonal
      Matrix inverse[2];  // of a pair of heads: A, then (I + A)^-1 in its place
    };
  };

  float norm[2][kTokens];                  // r_k and r_q
  float decay[kMostHeadsPerKey][kTokens];  // Gc
  float beta[kMostHeadsPerKey][kTokens];
  sm90::Barrier loaded;
};

// The sum of squares of half a row of 128, one tile's.
__device__ inline float row_squares(const uint8_t* tile, int row) {
  float sum = 0;
#pragma unroll
  for (int piece = 0; piece < 8; ++piece) {
    const uint4 raw =
        *reinterpret_cast<const uint4*>(tile + row * 128 + ((piece ^ (row % 8)) * 16));
    const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&raw);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = __bfloat1622float2(pairs[i]);
      sum += two.x * two.x + two.y * two.y;
    }
  }
  return sum;
}

// Inverts the diagonal block `block` of 16 of a unit lower triangular matrix by forward
// substitution, in place; one lane a column, the upper half of the warp repeats the lower.
__device__ inline void invert_diagonal(Matrix& m, int block, int lane) {
  const int column = lane % 16;
  const int base = 16 * block;
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float left[16];
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      *reinterpret_cast<float4*>(left + j) =
          *reinterpret_cast<const float4*>(&m[base + i][base + j]);
    }
    float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; ++j) sum -= left[j] * x[j];
    x[i] = sum;
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16; ++i) m[base + i][base + column] = x[i];
}

__device__ inline uint32_t as_tf32(float value) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

// sum [16, 8 * kTiles] += left [16, kDepth] * right [kDepth, 8 * kTiles] by one warp, both of pitch
// kPitch. A thread holds of every 8 columns: rows l/4 and l/4 + 8, columns 2(l%4) and the next.
template <int kTiles, int kDepth>
__device__ inline void add_product(float (&sum)[kTiles][4], const float* left, const float* right,
                                   int lane) {
  const int row = lane / 4;
  const int k = lane % 4;
#pragma unroll
  for (int step = 0; step < kDepth; step += 8) {
    const float* a = left + row * kPitch + step + k;
    const uint32_t a0 = as_tf32(a[0]);
    const uint32_t a1 = as_tf32(a[8 * kPitch]);
    const uint32_t a2 = as_tf32(a[4]);
    const uint32_t a3 = as_tf32(a[8 * kPitch + 4]);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const float* b = right + (step + k) * kPitch + 8 * tile + row;
      float(&d)[4] = sum[tile];
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
          "{%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(as_tf32(b[0])), "r"(as_tf32(b[4 * kPitch])));
    }
  }
}

template <int kTiles>
__device__ inline void store_product(float* to, const float (&sum)[kTiles][4], float sign,
                                     int lane) {
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    float* at = to + lane / 4 * kPitch + 8 * tile + 2 * (lane % 4);
    at[0] = sign * sum[tile][0];
    at[1] = sign * sum[tile][1];
    at[8 * kPitch] = sign * sum[tile][2];
    at[8 * kPitch + 1] = sign * sum[tile][3];
  }
}

// With the diagonal blocks of 16 inverted, the rest of the matrix, by the warps of one group: below
// two neighbouring inverted blocks M11 and M22, M21 <- -M22 (M21 M11); first for blocks of 16, two
// warps for each (8 columns), then for those of 32, a warp for 8 columns. Products are tf32: what
// follows rounds to bf16.
__device__ inline void merge_blocks(Matrix& m, int group, int warp, int lane) {
  {
    const int first = warp / 2 * 32;
    const int column = warp % 2 * 8;
    float* corner = &m[first + 16][first];
    float inner[1][4] = {};
    add_product<1, 16>(inner, corner, &m[first][first + column], lane);
    group_barrier(group);
    store_product(corner + column, inner, 1.0f, lane);
    __syncwarp();
    float outer[1][4] = {};
    add_product<1, 16>(outer, &m[first + 16][first + 16], corner + column, lane);
    __syncwarp();
    store_product(corner + column, outer, -1.0f, lane);
  }
  group_barrier(group);
  const int column = warp * 8;
  float product[2][1][4] = {};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    add_product<1, 32>(product[half], &m[32 + 16 * half][0], &m[0][column], lane);
  }
  group_barrier(group);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    store_product(&m[32 + 16 * half][column], product[half], 1.0f, lane);
#pragma unroll
    for (int i = 0; i < 4; ++i) product[half][0][i] = 0;
  }
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    add_product<1, 32>(product[half], &m[32 + 16 * half][32], &m[32][column], lane);
  }
  __syncwarp();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    store_product(&m[32 + 16 * half][column], product[half], -1.0f, lane);
  }
}

__device__ inline float softplus(float x) { return x > 20.0f ? x : log1pf(__expf(x)); }

// The gates of one value head for the tokens of a chunk, by one warp: beta and the cumulated decay.
__device__ inline void compute_gates(const Params& p, const Chunk& chunk, int head, float* decay,
                                     float* beta, int lane) {
  float g[2];
  float rate[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = 2 * lane + i;
    g[i] = 0;
    rate[i] = 0;
    if (token >= chunk.num_rows) continue;
    const int64_t row = chunk.first_row + token;
    g[i] = p.neg_exp_a_log[head] * softplus(p.a[row * p.a_stride + head] + p.dt_bias[head]);
    rate[i] = 1.0f / (1.0f + __expf(-p.b[row * p.b_stride + head]));
  }
  float sum = g[0] + g[1];
#pragma unroll
  for (int distance = 1; distance < kWarp; distance *= 2) {
    const float before = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += before;
  }
  decay[2 * lane] = sum - g[1];
  decay[2 * lane + 1] = sum;
  beta[2 * lane] = rate[0];
  beta[2 * lane + 1] = rate[1];
}

__device__ inline void load_eight(float (&to)[8], const float* from) {
  *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from);
  *reinterpret_cast<float4*>(to + 4) = *reinterpret_cast<const float4*>(from + 4);
}

__device__ inline uint4 pack_eight(const float (&x)[8]) {
  return make_uint4(sm90::pack(x[0], x[1]), sm90::pack(x[2], x[3]), sm90::pack(x[4], x[5]),
                    sm90::pack(x[6], x[7]));
}

// T and P of one head from its inverse, by one warpgroup: a thread takes 8 columns of a row at a
// time.
__device__ inline void write_factors(const PrepareShared& s, const Chunk& chunk, int head, int slot,
                                     int thread, Factors& out) {
  const float* decay = s.decay[head];
#pragma unroll
  for (int piece = thread; piece < kTokens * 8; piece += kWarpgroup) {
    const int row = piece / 8;
    const int column = piece % 8 * 8;
    uint4 packed_t = make_uint4(0, 0, 0, 0);
    uint4 packed_p = packed_t;
    if (column <= row && row < chunk.num_rows) {
      float t[8];
      float q[8];
      float rate[8];
      float before[8];
      load_eight(t, &s.inverse[slot][row][column]);
      load_eight(q, &s.attention[row][column]);
      load_eight(rate, s.beta[head] + column);
      load_eight(before, decay + column);
#pragma unroll
      for (int j = 0; j < 8; ++j) {
        // Above the diagonal both are 0, but the exponent may be large.
        const float grown = __expf(fminf(decay[row] - before[j], 0.0f));
        t[j] *= rate[j] * grown;
        q[j] *= grown;
      }
      packed_t = pack_eight(t);
      packed_p = pack_eight(q);
    }
    *reinterpret_cast<uint4*>(swizzled(out.t, row, column)) = packed_t;
    *reinterpret_cast<uint4*>(swizzled(out.p, row, column)) = packed_p;
  }
  if (thread < kTokens) {
    const float last = decay[chunk.num_rows - 1];
    const float grown = __expf(decay[thread]);
    out.value_scale[thread] = grown * s.norm[0][thread];
    out.query_scale[thread] = grown * s.norm[1][thread];
    out.key_scale[thread] = __expf(fminf(last - decay[thread], 0.0f)) * s.norm[0][thread];
    if (thread == 0) {
      out.state_scale = __expf(last);
      out.chunk = chunk;
    }
  }
}

// A block prepares one chunk for all value heads of one key head: K K' by the first warpgroup, Q K'
// by the second, on tensor cores; then each takes every other head. 2 * 64 * 64 * 128 multiply-adds
// a key head and some 90,000 a value head; reads 32 KiB, writes 17 KiB a value head.
__global__ void __launch_bounds__(kPrepareThreads, 3)
    prepare_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  extern __shared__ __align__(1024) uint8_t raw[];
  PrepareShared& s = *reinterpret_cast<PrepareShared*>(raw);
  const int group = static_cast<int>(threadIdx.x) / kWarpgroup;
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const int64_t index = blockIdx.x;
  const int key_head = static_cast<int>(blockIdx.y);
  const int heads_per_key = p.num_value_heads / p.num_key_heads;
  if (index >= p.chunk_start[*p.num_listed]) return;
  const Chunk chunk = p.chunks[index];

  if (threadIdx.x == 0) {
    sm90::init(s.loaded, 1);
    sm90::publish_barriers();
    sm90::arrive_expecting(s.loaded, 4 * kTileBytes);
    const int32_t q_column = key_head * kWidth;
    const int32_t k_column = (p.num_key_heads + key_head) * kWidth;
    for (int half = 0; half < 2; ++half) {
      sm90::copy_box(s.k[half], p.qkv, k_column + 64 * half, chunk.first_row, s.loaded);
      sm90::copy_box(s.q[half], p.qkv, q_column + 64 * half, chunk.first_row, s.loaded);
    }
  }
  __syncthreads();
  const int any_warp = static_cast<int>(threadIdx.x) / kWarp;
  for (int head = any_warp; head < heads_per_key; head += kPrepareThreads / kWarp) {
    compute_gates(p, chunk, key_head * heads_per_key + head, s.decay[head], s.beta[head], lane);
  }
  sm90::wait(s.loaded, 0);

  float product[32];
  sm90::products_fence();
#pragma unroll
  for (int step = 0; step < 8; ++step) {
    const uint8_t* left = group == 0 ? s.k[step / 4] : s.q[step / 4];
    sm90::product(product, sm90::rows_along_k(left, step % 4 * 16),
                  sm90::rows_along_k(s.k[step / 4], step % 4 * 16), step > 0);
  }
  sm90::products_commit();
  {
    // Two neighbouring threads a row, one for each half of it.
    const int row = thread / 2;
    const uint8_t(*tiles)[kTileBytes] = group == 0 ? s.k : s.q;
    float sum = row_squares(tiles[thread % 2], row);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    const float norm = group == 0 ? rsqrtf(sum + 1e-6f) : rsqrtf((sum + 1e-6f) * kWidth);
    if (thread % 2 == 0) s.norm[group][row] = row < chunk.num_rows ? norm : 0.0f;
  }
  sm90::products_wait<0>();
  sm90::settle(product);
  __syncthreads();  // the tiles are read: the matrices take their place

  {
    Matrix& to = group == 0 ? s.similarity : s.attention;
    const int row0 = 16 * warp + lane / 4;  // of this thread's accumulators, and row0 + 8
    const int column0 = 2 * (lane % 4);
    const int last = group;  // the diagonal itself belongs to the attention alone
#pragma unroll
    for (int i = 0; i < 32; i += 2) {
      const int row = row0 + (i & 2) * 4;
      const int column = i / 4 * 8 + column0;
      const float left = s.norm[group][row];
      const float2 right = *reinterpret_cast<const float2*>(&s.norm[0][column]);
      const bool real = row < chunk.num_rows;
      float2 value;
      value.x = real && column < row + last ? product[i] * left * right.x : 0.0f;
      value.y = real && column + 1 < row + last ? product[i + 1] * left * right.y : 0.0f;
      *reinterpret_cast<float2*>(&to[row][column]) = value;
    }
  }
  __syncthreads();
  for (int head = group; head < heads_per_key; head += 2) {
    Matrix& m = s.inverse[group];
#pragma unroll
    for (int piece = thread; piece < kTokens * 8; piece += kWarpgroup) {
      const int row = piece / 8;
      const int column = piece % 8 * 8;
      float a[8];
      load_eight(a, &s.similarity[row][column]);
      const float rate = s.beta[head][row];
#pragma unroll
      for (int j = 0; j < 8; ++j) a[j] *= rate;
      *reinterpret_cast<float4*>(&m[row][column]) = make_float4(a[0], a[1], a[2], a[3]);
      *reinterpret_cast<float4*>(&m[row][column + 4]) = make_float4(a[4], a[5], a[6], a[7]);
    }
    group_barrier(group);
    invert_diagonal(m, warp, lane);
    group_barrier(group);
    merge_blocks(m, group, warp, lane);
    group_barrier(group);
    write_factors(s, chunk, head, group, thread,
                  p.factors[index * p.num_value_heads + key_head * heads_per_key + head]);
    group_barrier(group);
  }
}

// --- scan ---

constexpr int kStages = 3;

// Threads: the computing warpgroups, then one warp that loads and one for each group that writes y.
// Two computing warpgroups need more registers than an equal share: the others fill up a warpgroup,
// then, and give theirs up.
template <int kGroups>
constexpr int kScanThreads = kGroups == 1 ? kWarpgroup + 2 * kWarp : 3 * kWarpgroup;

template <int kGroups>
struct ScanStage {
  uint8_t k[2][kTileBytes];
  uint8_t q[2][kTileBytes];
  uint8_t v[kGroups][kTileBytes];
  Factors factors;
};

template <int kGroups>
struct ScanShared {
  ScanStage<kGroups> stages[kStages];
  uint8_t y[kGroups][kTileBytes];
  sm90::Barrier full[kStages];
  sm90::Barrier empty[kStages];
  sm90::Barrier y_full[kGroups];
  sm90::Barrier y_empty[kGroups];
};

// Writes this thread's part of a state to a slot of snapshots, two neighbours at a time: of rows of
// 128 keys, four lanes hold one.
template <typename Stored>
__device__ inline void store_snapshot_as(const Params& p, int64_t slot, int head, int first_channel,
                                         const float (&state)[64], int warp, int lane) {
  struct alignas(2 * sizeof(Stored)) Pair {
    Stored low, high;
  };

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t row = head * kWidth + first_channel + 16 * warp + lane / 4 + 8 * half;
    RowScale scale;
    if constexpr (std::is_same_v<Stored, int8_t>) {
      float largest = 0;
      bool finite = true;
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const float x = state[i / 2 * 4 + 2 * half + i % 2];
        largest = fmaxf(largest, fabsf(x));
        finite = finite && isfinite(x);
      }
#pragma unroll
      for (int distance = 1; distance < 4; distance *= 2) {
        largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, distance));
        finite = __shfl_xor_sync(0xffffffffu, static_cast<int>(finite), distance) != 0 && finite;
      }
      scale = scale_of(largest, finite);
      if (lane % 4 == 0) p.snapshots.scales[slot * p.snapshots.scale_stride + row] = scale.scale;
    }
    const int64_t number = p.snapshots.number_of(slot, row) + 2 * (lane % 4);
    auto* to = reinterpret_cast<Pair*>(static_cast<Stored*>(p.snapshots.data) + number);
#pragma unroll
    for (int block = 0; block < 16; ++block) {
      to[4 * block] = {stored_number<Stored>(state[4 * block + 2 * half], scale),
                       stored_number<Stored>(state[4 * block + 2 * half + 1], scale)};
    }
  }
}

// The dtype is asked for once: with a branch at every number the code would be more than the
// instruction cache holds.
__device__ inline void store_snapshot(const Params& p, int64_t slot, int head, int first_channel,
                                      const float (&state)[64], int warp, int lane) {
  with_stored(p.snapshots.dtype, [&](auto type) {
    store_snapshot_as<decltype(type)>(p, slot, head, first_channel, state, warp, lane);
  });
}

// v' of a chunk and half, and the scale of u, in the places of an accumulator.
__device__ inline void load_values(uint32_t (&v)[16], float2 (&scale)[8], uint8_t* values,
                                   const float* value_scale, int warp, int lane) {
#pragma unroll
  for (int two = 0; two < 4; ++two) {  // blocks 2 * two and 2 * two + 1 of 8 tokens
    uint32_t four[4];
    const int token = 8 * (2 * two + lane / 16) + lane % 8;
    sm90::load_transposed(four, swizzled(values, token, 16 * warp + lane / 8 % 2 * 8));
#pragma unroll
    for (int i = 0; i < 4; ++i) v[4 * two + i] = four[i];
  }
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    scale[block] = *reinterpret_cast<const float2*>(value_scale + 8 * block + 2 * (lane % 4));
  }
}

// w = v' - (exp(Gc) r_k) u, packed as the left factor of w T'. With kWhole, all 64 rows are of the
// chunk; else those behind it give 0, whatever they hold.
template <bool kWhole>
__device__ inline void pack_residuals(uint32_t (&w)[4][4], const float (&u)[32],
                                      const uint32_t (&v)[16], const float2 (&scale)[8],
                                      int num_rows, int lane) {
#pragma unroll
  for (int block = 0; block < 8; ++block) {
    const int column = 8 * block + 2 * (lane % 4);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float2 value = sm90::unpack(v[2 * block + half]);
      float first = value.x - scale[block].x * u[4 * block + 2 * half];
      float second = value.y - scale[block].y * u[4 * block + 2 * half + 1];
      if constexpr (!kWhole) {
        if (column >= num_rows) first = 0;
        if (column + 1 >= num_rows) second = 0;
      }
      w[block / 2][block % 2 * 2 + half] = sm90::pack(first, second);
    }
  }
}

// One warp writes a group's part of y, chunk by chunk, from the tile where the group leaves it.
__device__ inline void write_y(const Params& p, uint8_t* tile, sm90::Barrier& full,
                               sm90::Barrier& empty, const Chunk* chunks, int num_chunks,
                               int column, int lane) {
  for (int c = 0; c < num_chunks; ++c) {
    const int32_t first_row = chunks[c].first_row;
    const int32_t num_rows = chunks[c].num_rows;
    CudaBf16* to = p.y + (first_row + lane / 8) * p.y_stride + column + lane % 8 * 8;
    sm90::wait(full, c % 2);
#pragma unroll 4
    for (int row = lane / 8; row < kTokens; row += kWarp / 8) {
      const uint4 piece = *reinterpret_cast<const uint4*>(swizzled(tile, row, lane % 8 * 8));
      if (row < num_rows) *reinterpret_cast<uint4*>(to) = piece;  // behind: another sequence's
      to += kWarp / 8 * p.y_stride;
    }
    __syncwarp();
    if (lane == 0) sm90::arrive(empty);
  }
}

// A block walks the chunks of one value head of one sequence, a warpgroup per half of the value
// channels, whose rows of the state stay in its accumulators; one more warp loads ahead. Per chunk
// and half: 3 products of 64 x 64 x 128 and 2 of 64 x 64 x 64. Traffic per chunk and block: 49 KiB
// and 8 for each half in, 8 for each half out.
//
// The next chunk waits for little: u = S' k, d = w T', S += d k. The products of y and its
// way out run in the gaps, those with P one chunk later.
template <int kGroups>
__global__ void __launch_bounds__(kScanThreads<kGroups>, 1)
    scan_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  extern __shared__ __align__(1024) uint8_t raw[];
  using Shared = ScanShared<kGroups>;
  Shared& s = *reinterpret_cast<Shared*>(raw);
  const int thread = static_cast<int>(threadIdx.x);
  constexpr int kSlices = 2 / kGroups;  // blocks a head
  const int item = static_cast<int>(blockIdx.x) / (p.num_value_heads * kSlices);
  const int head = static_cast<int>(blockIdx.x) / kSlices % p.num_value_heads;
  const int slice = static_cast<int>(blockIdx.x) % kSlices;
  if (item >= *p.num_listed) return;
  const int32_t b = p.scanned[item];
  const int32_t first_chunk = p.chunk_start[item];
  const int32_t num_chunks = p.chunk_start[item + 1] - first_chunk;

  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      sm90::init(s.full[i], 1);
      sm90::init(s.empty[i], 4 * kGroups);  // a warp each
    }
    for (int i = 0; i < kGroups; ++i) {
      sm90::init(s.y_full[i], 4);
      sm90::init(s.y_empty[i], 1);
    }
    sm90::publish_barriers();
  }
  __syncthreads();

  if (thread >= kGroups * kWarpgroup) {
    if constexpr (kGroups == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    const int helper = (thread - kGroups * kWarpgroup) / kWarp;
    if (helper >= 1 && helper <= kGroups) {
      const int group = helper - 1;
      write_y(p, s.y[group], s.y_full[group], s.y_empty[group], p.chunks + first_chunk, num_chunks,
              head * kWidth + kHalf * (slice + group), thread % kWarp);
      return;
    }
    if (thread != kGroups * kWarpgroup) return;
    const int key_head = head / (p.num_value_heads / p.num_key_heads);
    const int32_t q_column = key_head * kWidth;
    const int32_t k_column = (p.num_key_heads + key_head) * kWidth;
    const int32_t v_column = 2 * p.num_key_heads * kWidth + head * kWidth;
    for (int c = 0; c < num_chunks; ++c) {
      const int i = c % kStages;
      ScanStage<kGroups>& stage = s.stages[i];
      sm90::wait(s.empty[i], (c / kStages + 1) % 2);
      sm90::arrive_expecting(s.full[i], sizeof(ScanStage<kGroups>));
      const int32_t row = p.chunks[first_chunk + c].first_row;
      const Factors* factors =
          p.factors + static_cast<int64_t>(first_chunk + c) * p.num_value_heads + head;
      for (int half = 0; half < 2; ++half) {
        sm90::copy_box(stage.k[half], p.qkv, k_column + 64 * half, row, s.full[i]);
        sm90::copy_box(stage.q[half], p.qkv, q_column + 64 * half, row, s.full[i]);
      }
      for (int group = 0; group < kGroups; ++group) {
        sm90::copy_box(stage.v[group], p.qkv, v_column + kHalf * (slice + group), row, s.full[i]);
      }
      sm90::copy_linear(&stage.factors, factors, sizeof(Factors), s.full[i]);
    }
    return;
  }

  if constexpr (kGroups == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  const int group = thread / kWarpgroup;
  const int warp = thread % kWarpgroup / kWarp;
  const int lane = thread % kWarp;
  const int first_channel = kHalf * (slice + group);
  const int column0 = 2 * (lane % 4);
  float* slot = p.state + p.batch.state_slots[b] * p.state_stride + head * kWidth * kWidth;

  float state[64];  // S' [64 value channels, 128 keys]
  const bool begins = p.batch.context_lens[b] == 0;
#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int row = first_channel + 16 * warp + lane / 4 + 8 * (i & 1);
    const float2 two =
        begins ? make_float2(0, 0)
               : *reinterpret_cast<const float2*>(slot + row * kWidth + i / 2 * 8 + column0);
    state[2 * i] = two.x;
    state[2 * i + 1] = two.y;
  }

  float o[32] = {};       // S' q, then y of the chunk
  uint32_t d[4][4] = {};  // packed, for the product with P

  // y of the chunk in stage `i` takes one product more; then the stage is free.
  const auto add_attention = [&](int i) {
    const uint64_t attention = sm90::rows_along_k(s.stages[i].factors.p, 0);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      sm90::product_n64<false>(o, d[step], sm90::further_along_k(attention, step), true);
    }
    sm90::products_commit();
  };
  // Leaves y, chunk number `c`, to the warp that writes it.
  const auto hand_over_y = [&](const uint32_t(&y)[16], int c) {
    sm90::wait(s.y_empty[group], (c + 1) % 2);
#pragma unroll
    for (int two = 0; two < 4; ++two) {
      const int token = 8 * (2 * two + lane / 16) + lane % 8;
      const uint32_t four[4] = {y[4 * two], y[4 * two + 1], y[4 * two + 2], y[4 * two + 3]};
      sm90::store_transposed(swizzled(s.y[group], token, 16 * warp + lane / 8 % 2 * 8), four);
    }
    __syncwarp();
    if (lane == 0) sm90::arrive(s.y_full[group]);
  };
  const auto take_y = [&](uint32_t(&y)[16]) {
    sm90::settle(o);
#pragma unroll
    for (int j = 0; j < 16; ++j) y[j] = sm90::pack(o[2 * j], o[2 * j + 1]);
  };
  const auto release = [&](int i) {
    __syncwarp();
    if (lane == 0) sm90::arrive(s.empty[i]);
  };

  for (int c = 0; c < num_chunks; ++c) {
    const int i = c % kStages;
    const int before = (c + kStages - 1) % kStages;
    ScanStage<kGroups>& stage = s.stages[i];
    const Factors& f = stage.factors;
    sm90::wait(s.full[i], c / kStages % 2);
    const Chunk chunk = f.chunk;

    if (chunk.num_rows < kTokens) {
      // Rows behind the chunk are another sequence's: their keys shall not meet the state, not even
      // times 0, since they may be NaN.
      constexpr int kThreads = kGroups * kWarpgroup;
      for (int at = thread; at < (kTokens - chunk.num_rows) * 16; at += kThreads) {
        const int row = chunk.num_rows + at / 16;
        *reinterpret_cast<uint4*>(stage.k[at % 16 / 8] + row * 128 + at % 8 * 16) =
            make_uint4(0, 0, 0, 0);
      }
      sm90::fence_async_proxy();
      asm volatile("bar.sync 3, %0;" ::"n"(kThreads) : "memory");
    }

    uint32_t a[8][4];
#pragma unroll
    for (int step = 0; step < 8; ++step) sm90::pack_step(state, step, a[step]);
    const float state_scale = f.state_scale;
#pragma unroll
    for (int j = 0; j < 64; ++j) state[j] *= state_scale;

    const uint64_t keys = sm90::rows_along_k(stage.k[0], 0);
    const uint64_t queries = sm90::rows_along_k(stage.q[0], 0);
    const uint64_t inverse = sm90::rows_along_k(f.t, 0);
    const uint64_t keys_along_n = sm90::rows_along_n(stage.k[0], 0, kTileBytes);
    float u[32];
    sm90::products_fence();
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      sm90::product_n64<false>(u, a[step], sm90::further_along_k(keys, step), step > 0);
    }
    sm90::products_commit();
    uint32_t v[16];
    float2 value_scale[8];
    load_values(v, value_scale, stage.v[group], f.value_scale, warp, lane);
    add_attention(before);  // the first time without meaning: o is overwritten below
    sm90::products_wait<1>();
    sm90::settle(u);

    uint32_t w[4][4];
    if (chunk.num_rows == kTokens) {
      pack_residuals<true>(w, u, v, value_scale, kTokens, lane);
    } else {
      pack_residuals<false>(w, u, v, value_scale, chunk.num_rows, lane);
    }

    sm90::products_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      sm90::product_n64<false>(u, w[step], sm90::further_along_k(inverse, step), step > 0);
    }
    sm90::products_commit();
    uint32_t y[16];
    sm90::products_wait<1>();  // the product with P
    take_y(y);
    sm90::products_fence();
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      sm90::product_n64<false>(o, a[step], sm90::further_along_k(queries, step), step > 0);
    }
    sm90::products_commit();
    if (c > 0) {
      release(before);
      hand_over_y(y, c - 1);
    }
    sm90::products_wait<1>();
    sm90::settle(u);

    uint32_t n[4][4];
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      sm90::pack_step(u, step, d[step]);
#pragma unroll
      for (int block = 0; block < 2; ++block) {
        const int j = 4 * (2 * step + block);
        const float2 scale =
            *reinterpret_cast<const float2*>(f.key_scale + 8 * (2 * step + block) + column0);
        n[step][2 * block] = sm90::pack(u[j] * scale.x, u[j + 1] * scale.y);
        n[step][2 * block + 1] = sm90::pack(u[j + 2] * scale.x, u[j + 3] * scale.y);
      }
    }
    sm90::products_fence();
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      sm90::product_n128<true>(state, n[step], sm90::further_along_n(keys_along_n, step), true);
    }
    sm90::products_commit();
    sm90::products_wait<1>();
    sm90::settle(o);
#pragma unroll
    for (int block = 0; block < 8; ++block) {
      const float2 scale = *reinterpret_cast<const float2*>(f.query_scale + 8 * block + column0);
      o[4 * block] *= scale.x;
      o[4 * block + 1] *= scale.y;
      o[4 * block + 2] *= scale.x;
      o[4 * block + 3] *= scale.y;
    }
    sm90::products_wait<0>();
    sm90::settle(state);
    if (chunk.snapshot_slot >= 0) {
      store_snapshot(p, chunk.snapshot_slot, head, first_channel, state, warp, lane);
    }
  }

  const int last = (num_chunks - 1) % kStages;
  uint32_t y[16];
  sm90::products_fence();
  add_attention(last);
  sm90::products_wait<0>();
  take_y(y);
  hand_over_y(y, num_chunks - 1);

#pragma unroll
  for (int i = 0; i < 32; ++i) {
    const int row = first_channel + 16 * warp + lane / 4 + 8 * (i & 1);
    *reinterpret_cast<float2*>(slot + row * kWidth + i / 2 * 8 + column0) =
        make_float2(state[2 * i], state[2 * i + 1]);
  }
}

// --- launch ---

// Chunks that sequences of at least kSm90MinRows rows have at most: their last one may be short.
// Room for some cuts by snapshots is added; a step with more does without this form.
constexpr int64_t kCuts = 16;

int64_t capacity_of(int64_t max_tokens) {
  return max_tokens / kTokens + max_tokens / kSm90MinRows + kCuts;
}

bool is_supported(const CudaContext& context, const GatedDeltaRuleSizes& sizes) {
  return context.gpu.properties().major == 9 && !context.exact && sizes.dtype == DType::kBf16 &&
         sizes.key_dim == kWidth && sizes.value_dim == kWidth && !sizes.channel_decay &&
         sizes.max_tokens >= kSm90MinRows;
}

// Sequences that have rows enough, and their chunks.
struct Work {
  int64_t sequences = 0;
  int64_t chunks = 0;
};

Work count_work(const ForwardContext& forward) {
  Work work;
  auto snapshot = forward.snapshots.begin();
  for (int64_t b = 0; b < forward.num_sequences(); ++b) {
    const auto rows = static_cast<int32_t>(forward.num_rows(b));
    while (snapshot != forward.snapshots.end() && snapshot->sequence < b) ++snapshot;
    if (rows < kSm90MinRows) continue;
    ++work.sequences;
    int32_t from = 0;
    for (; snapshot != forward.snapshots.end() && snapshot->sequence == b; ++snapshot) {
      work.chunks += chunks_between(from, snapshot->num_tokens);
      from = snapshot->num_tokens;
    }
    work.chunks += chunks_between(from, rows);
  }
  return work;
}

}  // namespace

int64_t gated_delta_rule_sm90_workspace_bytes(const CudaContext& context,
                                              const GatedDeltaRuleSizes& sizes) {
  if (!is_supported(context, sizes)) return 0;
  const int64_t chunks = capacity_of(sizes.max_tokens);
  const int64_t sequences = sizes.max_tokens / kSm90MinRows;
  return chunks * (sizes.num_value_heads * static_cast<int64_t>(sizeof(Factors)) +
                   static_cast<int64_t>(sizeof(Chunk))) +
         bytes_of(DType::kI32, 2 * sequences + 2) + 256;
}

bool gated_delta_rule_sm90_fits(const CudaContext& context, const GatedDeltaRuleArgs& args) {
  const int64_t num_value_heads = args.b.shape[1];
  return is_supported(context, {.max_tokens = args.qkv.shape[0],
                                .num_value_heads = num_value_heads,
                                .key_dim = args.key_dim,
                                .value_dim = args.value_dim,
                                .channel_decay = args.a.shape[1] != num_value_heads,
                                .dtype = args.qkv.dtype}) &&
         num_value_heads / args.num_key_heads <= kMostHeadsPerKey && sm90::can_map(args.qkv) &&
         sm90::can_map(args.y) &&
         count_work(*args.forward).chunks <= capacity_of(args.qkv.shape[0]);
}

Status gated_delta_rule_sm90(CudaContext& context, const GatedDeltaRuleArgs& args) {
  const ForwardContext& forward = *args.forward;
  const Work work = count_work(forward);
  if (work.sequences == 0) return {};
  const int64_t num_value_heads = args.b.shape[1];
  const MutableTensorView& snapshots = args.snapshots.recurrent;
  Params params{.batch = forward.batch,
                .num_sequences = static_cast<int32_t>(forward.num_sequences()),
                .num_scanned = static_cast<int32_t>(work.sequences),
                .num_key_heads = static_cast<int32_t>(args.num_key_heads),
                .num_value_heads = static_cast<int32_t>(num_value_heads),
                .a = args.a.as<float>(),
                .b = args.b.as<float>(),
                .neg_exp_a_log = args.neg_exp_a_log.as<float>(),
                .dt_bias = args.dt_bias.as<float>(),
                .a_stride = args.a.row_stride,
                .b_stride = args.b.row_stride,
                .y = args.y.as<CudaBf16>(),
                .y_stride = args.y.row_stride,
                .state = args.state.recurrent.as<float>(),
                .state_stride = args.state.recurrent.row_stride,
                .snapshots = {.data = snapshots.data,
                              .scales = args.snapshots.scales.as<float>(),
                              .slot_stride = snapshots.row_stride,
                              .scale_stride = args.snapshots.scales.row_stride,
                              .Dk = kWidth,
                              .dtype = snapshots.dtype}};
  HEDDLE_RETURN_IF_ERROR(sm90::map_boxes(args.qkv, kTokens, params.qkv));
  const auto start = reinterpret_cast<uintptr_t>(args.workspace.data());
  std::byte* next = args.workspace.data() + (256 - start % 256) % 256;
  params.factors = reinterpret_cast<Factors*>(next);
  next += work.chunks * num_value_heads * static_cast<int64_t>(sizeof(Factors));
  params.chunks = reinterpret_cast<Chunk*>(next);
  next += work.chunks * static_cast<int64_t>(sizeof(Chunk));
  params.chunk_start = reinterpret_cast<int32_t*>(next);
  params.scanned = params.chunk_start + work.sequences + 1;
  params.num_listed = params.scanned + work.sequences;

  HEDDLE_RETURN_IF_ERROR(launch(context, "gated_delta_rule_plan", plan_kernel, 1, 1024, params));
  HEDDLE_RETURN_IF_ERROR(allow_shared(prepare_kernel, sizeof(PrepareShared)));
  const dim3 chunk_heads(static_cast<unsigned>(work.chunks),
                         static_cast<unsigned>(args.num_key_heads));
  HEDDLE_RETURN_IF_ERROR(launch(context, "gated_delta_rule_prepare", prepare_kernel, chunk_heads,
                                kPrepareThreads, params, sizeof(PrepareShared)));

  // One block a head where that fills the GPU, else one for each half of it.
  const int64_t heads = work.sequences * num_value_heads;
  if (heads >= context.gpu.properties().num_multiprocessors) {
    HEDDLE_RETURN_IF_ERROR(allow_shared(scan_kernel<2>, sizeof(ScanShared<2>)));
    return launch(context, "gated_delta_rule_scan", scan_kernel<2>, grid_of(heads), kScanThreads<2>,
                  params, sizeof(ScanShared<2>));
  }
  HEDDLE_RETURN_IF_ERROR(allow_shared(scan_kernel<1>, sizeof(ScanShared<1>)));
  return launch(context, "gated_delta_rule_scan", scan_kernel<1>, grid_of(2 * heads),
                kScanThreads<1>, params, sizeof(ScanShared<1>));
}

}  // namespace heddle::ops
