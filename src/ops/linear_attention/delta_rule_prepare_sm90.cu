// SPDX-License-Identifier: Apache-2.0
#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/cuda/sm90/bulk_copy.cuh"
#include "ops/cuda/sm90/mbarrier.cuh"
#include "ops/cuda/sm90/wgmma.cuh"
#include "ops/linear_attention/delta_rule_chunks_sm90.cuh"

namespace heddle::ops::chunked {

namespace {

using sm90::group_barrier;
using sm90::kWarpgroup;
using sm90::swizzled;

constexpr int kPitch = 68;  // floats from one row of a 64 x 64 matrix to the next
constexpr int kPrepareThreads = 2 * kWarpgroup;

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

}  // namespace

Status prepare_chunks(CudaContext& context, const Params& params, int64_t num_chunks) {
  HEDDLE_RETURN_IF_ERROR(allow_shared(prepare_kernel, sizeof(PrepareShared)));
  const dim3 chunk_heads(static_cast<unsigned>(num_chunks),
                         static_cast<unsigned>(params.num_key_heads));
  return launch(context, "gated_delta_rule_prepare", prepare_kernel, chunk_heads, kPrepareThreads,
                params, sizeof(PrepareShared));
}

}  // namespace heddle::ops::chunked
