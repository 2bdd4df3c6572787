// SPDX-License-Identifier: Apache-2.0
// Computes the factors T and P of one chunk (docs/delta-rule.md) for the value heads of one key
// head. A team of two warpgroups does it: the first computes K K', the second Q K' (wgmma), then
// each processes every other value head. A = beta_i K K' below the diagonal is inverted in blocks
// of 16 by substitution (a lane a column), and the blocks are merged by tf32 products of the warps.
// Flops: 2 * 64 * 64 * 128 multiply-adds a key head, some 90,000 a value head. Bytes: reads 32 KiB,
// writes 17 KiB a value head. Called by the kernels in delta_rule_prepare_sm90.cu and
// ..._stream_sm90.cu.
#pragma once

#include "ops/cuda/reduce.cuh"
#include "ops/cuda/sm90/bulk_copy.cuh"
#include "ops/cuda/sm90/mbarrier.cuh"
#include "ops/cuda/sm90/wgmma.cuh"
#include "ops/linear_attention/delta_rule_chunks_sm90.cuh"

namespace heddle::ops::chunked {

using sm90::group_barrier;
using sm90::kWarpgroup;
using sm90::swizzled;

inline constexpr int kPrepareThreads = 2 * kWarpgroup;

// A 64 x 64 matrix of floats in shared memory. A column's position in its row is its number XOR a
// mask that differs within 8 rows, so that no memory bank is accessed twice when a warp reads 8
// rows of 4 columns, 4 rows of 8 or half a row, or writes accumulators. Rows 8 apart have the same
// mask.
struct Matrix {
  static constexpr int kEightRows = 8 * kTokens;

  float numbers[kTokens * kTokens];

  // The mask of a row below 8; a multiple of 4, so that quads of columns stay together.
  [[nodiscard]] __host__ __device__ static constexpr int exchange(int row) {
    return row % 4 * 8 + row / 4 * 4;
  }

  // Address of column `column` of row `row` + 8 * `eights`. The following columns up to a multiple
  // of four are adjacent.
  [[nodiscard]] __device__ float* at(int eights, int row, int column) {
    return numbers + eights * kEightRows + row * kTokens + (column ^ exchange(row));
  }

  [[nodiscard]] const __device__ float* at(int eights, int row, int column) const {
    return numbers + eights * kEightRows + row * kTokens + (column ^ exchange(row));
  }
};

struct alignas(1024) PrepareShared {
  union {
    struct {
      uint8_t k[2][kTileBytes];
      uint8_t q[2][kTileBytes];
    };

    struct {              // used when the products are computed
      Matrix similarity;  // (k_i . k_j) r_k,i r_k,j below the diagonal
      Matrix attention;   // q^_i . k^_j up to the diagonal
      Matrix inverse[2];  // for each warpgroup's current head: A, later replaced by (I + A)^-1
    };
  };

  float norm[2][kTokens];                  // r_k and r_q, inverse norms of keys and queries
  float decay[kMostHeadsPerKey][kTokens];  // Gc, cumulative log decays of each value head
  float beta[kMostHeadsPerKey][kTokens];
  sm90::Barrier loaded;
};

// The team of kPrepareThreads that a thread belongs to; each team of a block has three named
// barriers.
struct Team {
  int number;
  int thread;

  __device__ static Team of_thread(int thread) {
    return {.number = thread / kPrepareThreads, .thread = thread % kPrepareThreads};
  }

  [[nodiscard]] __device__ int group() const { return thread / kWarpgroup; }

  __device__ void wait_for_group() const { group_barrier(3 * number + group()); }

  __device__ void wait_for_team() const {
    asm volatile("bar.sync %0, %1;" ::"r"(1 + 3 * number + 2), "n"(kPrepareThreads) : "memory");
  }
};

// The sum of squares of half a row of 128, which is in one tile. The two threads that read both
// halves of a row start with different pieces.
__device__ inline float row_squares(const uint8_t* tile, int row, int half) {
  float sum = 0;
#pragma unroll
  for (int piece = 0; piece < 8; ++piece) {
    const uint4 raw =
        *reinterpret_cast<const uint4*>(tile + row * 128 + ((piece ^ (row % 8) ^ (4 * half)) * 16));
    const auto* pairs = reinterpret_cast<const __nv_bfloat162*>(&raw);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 two = __bfloat1622float2(pairs[i]);
      sum += two.x * two.x + two.y * two.y;
    }
  }
  return sum;
}

// Inverts diagonal block `block` of 16 of a unit lower triangular matrix in place, by forward
// substitution. A lane computes one column; the upper half of the warp repeats the lower half.
__device__ inline void invert_diagonal(Matrix& m, int block, int lane) {
  const int column = lane % 16;
  float* const first = m.numbers + 16 * block * kTokens;
  // Masks of 16 and more point to the neighbouring 16 columns.
  float* const sides[2] = {first + 16 * block, first + (16 * block ^ 16)};
  const auto at = [&sides](int row, int j) {
    const int place = j ^ Matrix::exchange(row % 8);
    return sides[place / 16] + row * kTokens + place % 16;
  };
  float x[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float left[16];
#pragma unroll
    for (int j = 0; j < i; j += 4) {
      *reinterpret_cast<float4*>(left + j) = *reinterpret_cast<const float4*>(at(i, j));
    }
    float sum = i == column ? 1.0f : 0.0f;
#pragma unroll
    for (int j = 0; j < i; ++j) sum -= left[j] * x[j];
    x[i] = sum;
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int exchange = Matrix::exchange(i % 8);
    sides[exchange / 16][i * kTokens + (column ^ exchange % 16)] = x[i];
  }
}

__device__ inline uint32_t as_tf32(float value) {
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(value));
  return bits;
}

// First row and column of a block of a matrix; multiples of 8.
struct Corner {
  int row, column;
};

// sums [16 kHalves, 8] += left [16 kHalves, kDepth] * right [kDepth, 8] by one warp, for blocks of
// one matrix. Terms before `first`, a multiple of 8, are skipped, because the right factor is 0
// there. With kTriangular the left factor is lower triangular. A thread has rows l/4 and l/4 + 8 of
// every half, columns 2(l%4) and the next.
template <int kHalves, int kDepth, bool kTriangular>
__device__ inline void add_product(float (&sums)[kHalves][4], const Matrix& m, Corner left,
                                   Corner right, int first, int lane) {
  const int row = lane / 4;
  const int k = lane % 4;
  const float* const b = m.at(right.row / 8, k, right.column + row);
  const float* const next_b = m.at(right.row / 8, k + 4, right.column + row);
#pragma unroll
  for (int step = 0; step < kDepth; step += 8) {
    if (step < first) continue;
    const uint32_t b0 = as_tf32(b[step * kTokens]);
    const uint32_t b1 = as_tf32(next_b[step * kTokens]);
    const float* const a = m.at(left.row / 8, row, left.column + step + k);
    const float* const next_a = m.at(left.row / 8, row, left.column + step + k + 4);
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      if (kTriangular && step >= 16 * half + 16) continue;
      const int at = 2 * half * Matrix::kEightRows;
      const uint32_t a0 = as_tf32(a[at]);
      const uint32_t a1 = as_tf32(a[at + Matrix::kEightRows]);
      const uint32_t a2 = as_tf32(next_a[at]);
      const uint32_t a3 = as_tf32(next_a[at + Matrix::kEightRows]);
      float(&d)[4] = sums[half];
      asm volatile(
          "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
          "{%8, %9}, {%0, %1, %2, %3};"
          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
          : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
    }
  }
}

template <int kHalves>
__device__ inline void store_product(Matrix& m, Corner corner, const float (&sums)[kHalves][4],
                                     float sign, int lane) {
  float* const to = m.at(corner.row / 8, lane / 4, corner.column + 2 * (lane % 4));
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const float(&d)[4] = sums[half];
    float* const upper = to + 2 * half * Matrix::kEightRows;
    *reinterpret_cast<float2*>(upper) = make_float2(sign * d[0], sign * d[1]);
    *reinterpret_cast<float2*>(upper + Matrix::kEightRows) = make_float2(sign * d[2], sign * d[3]);
  }
}

// Computes the rest of the inverse from the inverted diagonal blocks of 16, by the warps of one
// warpgroup. Below two neighbouring inverted blocks M11 and M22, M21 <- -M22 (M21 M11); first for
// blocks of 16, two warps for each (8 columns), then for blocks of 32, a warp for 8 columns.
// Products are tf32, because the result is rounded to bf16.
__device__ inline void merge_blocks(Matrix& m, const Team& team, int warp, int lane) {
  {
    const int first = warp / 2 * 32;
    const int column = warp % 2 * 8;
    const Corner block{first + 16, first};
    const Corner own{first + 16, first + column};
    float inner[1][4] = {};
    add_product<1, 16, false>(inner, m, block, {first, first + column}, column, lane);
    team.wait_for_group();
    store_product(m, own, inner, 1.0f, lane);
    __syncwarp();
    float outer[1][4] = {};
    add_product<1, 16, true>(outer, m, {first + 16, first + 16}, own, 0, lane);
    __syncwarp();
    store_product(m, own, outer, -1.0f, lane);
  }
  team.wait_for_group();
  const int column = warp * 8;
  const Corner own{32, column};
  float inner[2][4] = {};
  add_product<2, 32, false>(inner, m, {32, 0}, {0, column}, column, lane);
  team.wait_for_group();
  store_product(m, own, inner, 1.0f, lane);
  __syncwarp();
  float outer[2][4] = {};
  add_product<2, 32, true>(outer, m, {32, 32}, own, 0, lane);
  __syncwarp();
  store_product(m, own, outer, -1.0f, lane);
}

__device__ inline float softplus(float x) { return x > 20.0f ? x : log1pf(__expf(x)); }

// Computes the gates of one value head for the tokens of a chunk, by one warp: beta and the
// cumulative log decay.
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

// Writes T and P of one head from its inverse, by one warpgroup: a thread computes four columns of
// every eighth row.
__device__ inline void write_factors(const PrepareShared& s, const Chunk& chunk, int head, int slot,
                                     int thread, Factors& out) {
  const float* decay = s.decay[head];
  const int first_row = thread / 16;
  const int column = thread % 16 * 4;
  const float* const inverse = s.inverse[slot].at(0, first_row, column);
  const float* const attention = s.attention.at(0, first_row, column);
  const float4 rate = *reinterpret_cast<const float4*>(s.beta[head] + column);
  const float4 before = *reinterpret_cast<const float4*>(decay + column);
  uint8_t* const to_t = swizzled(out.t, first_row, column);
  uint8_t* const to_p = swizzled(out.p, first_row, column);
#pragma unroll 4
  for (int eights = 0; eights < kTokens / 8; ++eights) {
    const int row = first_row + 8 * eights;
    uint2 packed_t = make_uint2(0, 0);
    uint2 packed_p = packed_t;
    if (column <= row && row < chunk.num_rows) {
      const int at = eights * Matrix::kEightRows;
      const float4 t = *reinterpret_cast<const float4*>(inverse + at);
      const float4 q = *reinterpret_cast<const float4*>(attention + at);
      // Above the diagonal both are 0, but the exponent may be large there.
      const auto grown = [now = decay[row]](float then) { return __expf(fminf(now - then, 0.0f)); };
      const float4 growth{grown(before.x), grown(before.y), grown(before.z), grown(before.w)};
      packed_t = make_uint2(sm90::pack(t.x * rate.x * growth.x, t.y * rate.y * growth.y),
                            sm90::pack(t.z * rate.z * growth.z, t.w * rate.w * growth.w));
      packed_p = make_uint2(sm90::pack(q.x * growth.x, q.y * growth.y),
                            sm90::pack(q.z * growth.z, q.w * growth.w));
    }
    *reinterpret_cast<uint2*>(to_t + eights * 1024) = packed_t;
    *reinterpret_cast<uint2*>(to_p + eights * 1024) = packed_p;
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

// One thread of a team calls it before the team's first chunk; then the block waits.
__device__ inline void start_preparing(PrepareShared& s) {
  sm90::init(s.loaded, 1);
  sm90::publish_barriers();
}

// Prepares chunk number `index` for all value heads of one key head: the first warpgroup computes K
// K', the second Q K', on tensor cores; then each processes every other head. `parity` is 0 for a
// team's first chunk, 1 for the second, and so on alternately. 2 * 64 * 64 * 128 multiply-adds a
// key head and some 90,000 a value head; reads 32 KiB, writes 17 KiB a value head.
__device__ inline void prepare_chunk(const Params& p, PrepareShared& s, const Team& team,
                                     int64_t index, int key_head, uint32_t parity) {
  const int group = team.group();
  const int thread = team.thread % kWarpgroup;
  const int warp = thread / kWarp;
  const int lane = thread % kWarp;
  const int heads_per_key = p.num_value_heads / p.num_key_heads;
  const Chunk chunk = p.chunks[index];

  if (team.thread == 0) {
    sm90::arrive_expecting(s.loaded, 4 * kTileBytes);
    const int32_t q_column = key_head * kWidth;
    const int32_t k_column = (p.num_key_heads + key_head) * kWidth;
    for (int half = 0; half < 2; ++half) {
      sm90::copy_box(s.k[half], p.qkv, k_column + 64 * half, chunk.first_row, s.loaded);
      sm90::copy_box(s.q[half], p.qkv, q_column + 64 * half, chunk.first_row, s.loaded);
    }
  }
  const int any_warp = team.thread / kWarp;
  for (int head = any_warp; head < heads_per_key; head += kPrepareThreads / kWarp) {
    compute_gates(p, chunk, key_head * heads_per_key + head, s.decay[head], s.beta[head], lane);
  }
  sm90::wait(s.loaded, parity);

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
    // Two neighbouring threads process a row, one for each half of it.
    const int row = thread / 2;
    const int half = thread % 2;
    float sum = row_squares(group == 0 ? s.k[half] : s.q[half], row, half);
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    const float norm = group == 0 ? rsqrtf(sum + 1e-6f) : rsqrtf((sum + 1e-6f) * kWidth);
    if (half == 0) s.norm[group][row] = row < chunk.num_rows ? norm : 0.0f;
  }
  sm90::products_wait<0>();
  sm90::settle(product);
  team.wait_for_team();  // the tiles were read, so that the matrices may overwrite them

  {
    Matrix& to = group == 0 ? s.similarity : s.attention;
    // The thread's accumulators are in rows row0 and row0 + 8.
    const int row0 = 16 * warp + lane / 4;
    const int column0 = 2 * (lane % 4);
    const int last = group;  // the diagonal itself belongs to `attention` only
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
      *reinterpret_cast<float2*>(to.at(row / 8, lane / 4, column)) = value;
    }
  }
  team.wait_for_team();
  for (int head = group; head < heads_per_key; head += 2) {
    Matrix& m = s.inverse[group];
    const float* const similarity = s.similarity.at(0, thread / 16, thread % 16 * 4);
    float* const own = m.at(0, thread / 16, thread % 16 * 4);
#pragma unroll 4
    for (int eights = 0; eights < kTokens / 8; ++eights) {
      const int at = eights * Matrix::kEightRows;
      float4 a = *reinterpret_cast<const float4*>(similarity + at);
      const float rate = s.beta[head][thread / 16 + 8 * eights];
      a.x *= rate;
      a.y *= rate;
      a.z *= rate;
      a.w *= rate;
      *reinterpret_cast<float4*>(own + at) = a;
    }
    team.wait_for_group();
    invert_diagonal(m, warp, lane);
    team.wait_for_group();
    merge_blocks(m, team, warp, lane);
    team.wait_for_group();
    write_factors(s, chunk, head, group, thread,
                  p.factors[index * p.num_value_heads + key_head * heads_per_key + head]);
    team.wait_for_group();
  }
}

}  // namespace heddle::ops::chunked
