// SPDX-License-Identifier: Apache-2.0
// A block's scan through the chunks of one value head (docs/delta-rule.md):
//   u = S' k    w = v - exp(Gc) r_k u    d = T w    y = exp(Gc) r_q S' q + P d
//   S <- exp(Gc_last) S + k (exp(Gc_last - Gc) r_k d)'
// A warpgroup computes 64 value channels: the state's rows stay in its accumulators (wgmma), 64
// numbers in each thread. One warp loads chunks ahead, one for each warpgroup writes y. Flops a
// chunk and half head: 3 products of 64 x 64 x 128, 2 of 64 x 64 x 64. Bytes a chunk: reads 49 KiB
// and 8 for each half, writes 8 for each half. Called by the kernels in delta_rule_scan_sm90.cu and
// ..._stream_sm90.cu.
#pragma once

#include <type_traits>

#include "ops/cuda/reduce.cuh"
#include "ops/cuda/sm90/bulk_copy.cuh"
#include "ops/cuda/sm90/mbarrier.cuh"
#include "ops/cuda/sm90/wgmma.cuh"
#include "ops/linear_attention/delta_rule_chunks_sm90.cuh"

namespace heddle::ops::chunked {

using sm90::kWarpgroup;
using sm90::swizzled;

inline constexpr int kHalf = 64;  // value channels that one warpgroup computes

inline constexpr int kStages = 3;

// Threads of a block: the computing warpgroups, then one warp that loads and one warp for each
// warpgroup that writes y. Two computing warpgroups need more registers than an equal share; in
// that case the other warps are padded to a warpgroup, which releases registers for them.
template <int kGroups>
inline constexpr int kScanThreads = kGroups == 1 ? kWarpgroup + 2 * kWarp : 3 * kWarpgroup;

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

// Writes this thread's part of a state to a snapshot slot, two neighbouring numbers at a time. Four
// lanes hold a row of 128 keys.
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

// Branches on the dtype once: with a branch at every number the code would exceed the instruction
// cache.
__device__ inline void store_snapshot(const Params& p, int64_t slot, int head, int first_channel,
                                      const float (&state)[64], int warp, int lane) {
  with_stored(p.snapshots.dtype, [&](auto type) {
    store_snapshot_as<decltype(type)>(p, slot, head, first_channel, state, warp, lane);
  });
}

// Loads v' of a chunk for one half of the channels, and the scale of u, in the layout of an
// accumulator.
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

// w = v' - (exp(Gc) r_k) u, packed as the left factor of w T'. With kWhole, the chunk has 64 rows;
// otherwise rows after its end become 0, whatever they contain.
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

// One warp writes a warpgroup's part of y to memory, chunk by chunk, from the shared memory tile
// that the warpgroup has stored it in.
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
      // Later rows belong to another sequence.
      if (row < num_rows) *reinterpret_cast<uint4*>(to) = piece;
      to += kWarp / 8 * p.y_stride;
    }
    __syncwarp();
    if (lane == 0) sm90::arrive(empty);
  }
}

// A block processes the chunks of one value head of one sequence in order. A warpgroup computes
// half of the value channels, whose rows of the state stay in its accumulators; one more warp loads
// ahead. Per chunk and half: 3 products of 64 x 64 x 128 and 2 of 64 x 64 x 64. Traffic per chunk
// and block: reads 49 KiB and 8 for each half, writes 8 for each half.
//
// The next chunk waits only for u = S' k, d = w T' and S += d k. The products for y and the storing
// of y run in the gaps, the products with P one chunk later.
//
// `index` is the index of the block among 2 / kGroups blocks for each head of each sequence. All
// threads of the block call this, at least kScanThreads. Computing threads get kComputeRegisters
// registers, all others kHelperRegisters; 0 keeps the number from the start. `await_factors(chunk,
// key_head)` returns once the chunk's factors may be loaded.
template <int kGroups, int kComputeRegisters, int kHelperRegisters, typename AwaitFactors>
__device__ __forceinline__ void scan_head(const Params& p, ScanShared<kGroups>& s, int index,
                                          const AwaitFactors& await_factors) {
  const int thread = static_cast<int>(threadIdx.x);
  constexpr int kSlices = 2 / kGroups;  // blocks for each head
  const int item = index / (p.num_value_heads * kSlices);
  const int head = index / kSlices % p.num_value_heads;
  const int slice = index % kSlices;
  if (item >= *p.num_listed) return;
  const int32_t b = p.scanned[item];
  const int32_t first_chunk = p.chunk_start[item];
  const int32_t num_chunks = p.chunk_start[item + 1] - first_chunk;

  if (thread == 0) {
    for (int i = 0; i < kStages; ++i) {
      sm90::init(s.full[i], 1);
      sm90::init(s.empty[i], 4 * kGroups);  // one arrival from each warp
    }
    for (int i = 0; i < kGroups; ++i) {
      sm90::init(s.y_full[i], 4);
      sm90::init(s.y_empty[i], 1);
    }
    sm90::publish_barriers();
  }
  __syncthreads();

  if (thread >= kGroups * kWarpgroup) {
    if constexpr (kComputeRegisters > 0)
      asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kHelperRegisters));
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
      await_factors(first_chunk + c, key_head);
      sm90::copy_linear(&stage.factors, factors, sizeof(Factors), s.full[i]);
    }
    return;
  }

  if constexpr (kComputeRegisters > 0)
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kComputeRegisters));
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

  float o[32] = {};       // S' q of the chunk, then its y
  uint32_t d[4][4] = {};  // d, packed for the product with P

  // Adds the product with P to y of the chunk in stage `i`; then the stage is free.
  const auto add_attention = [&](int i) {
    const uint64_t attention = sm90::rows_along_k(s.stages[i].factors.p, 0);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      sm90::product_n64<false>(o, d[step], sm90::further_along_k(attention, step), true);
    }
    sm90::products_commit();
  };
  // Stores y of chunk number `c` in shared memory for the warp that writes it to memory.
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
      // Rows after the chunk belong to another sequence: their keys may be NaN and must not be
      // added to the state, not even multiplied by 0.
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
    add_attention(before);  // has no effect in the first iteration: o is overwritten below
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
    sm90::products_wait<1>();  // waits for the product with P
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

}  // namespace heddle::ops::chunked
