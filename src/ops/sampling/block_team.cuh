// SPDX-License-Identifier: Apache-2.0
// BlockTeam: the threads of a block, or its first warps, as a team for sample_row_steps.h. each():
// a thread processes an index. tiles(): a warp processes a tile of 256 tokens. reduce(): warps join
// values by shuffles, then through shared memory. Every phase ends with a barrier of the team.
// of_cluster(): the blocks of a cluster are the teams of one row, which meet() and read each
// other's shared memory. Used by sample_rows_cuda.cu; on the CPU one thread is the team.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "ops/cuda/reduce.cuh"
#include "ops/sampling/sample_row_steps.h"

namespace heddle::ops::sampling_steps {

// Gets a value from another lane, word by word.
template <typename Value>
__device__ inline Value from_lane_xor(const Value& value, int mask) {
  static_assert(sizeof(Value) % 4 == 0);
  uint32_t words[sizeof(Value) / 4];
  memcpy(words, &value, sizeof(Value));
#pragma unroll
  for (uint32_t& word : words) word = __shfl_xor_sync(0xffffffffu, word, mask);
  Value other;
  memcpy(&other, words, sizeof(Value));
  return other;
}

template <typename Value>
__device__ inline void join_warp(Value& value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value.join(from_lane_xor(value, distance));
  }
}

// Maps logits to integers in the same order, of which a warp finds the largest in one instruction.
// NaN, in the form that max.NaN returns, is above all numbers.
__device__ inline void join_warp(BestLogit& value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto reordered = [](int bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
  const int largest = __reduce_max_sync(0xffffffffu, reordered(__float_as_int(value.max)));
  value.max = __int_as_float(reordered(largest));
#else
  join_warp<BestLogit>(value);
#endif
}

// All whole warps of a block are the team, or its first warps with a separate barrier. Every phase
// ends with the barrier.
template <int kThreads, int kBarrier = 0>
class BlockTeam {
 public:
  static constexpr int kWarps = kThreads / kWarp;

  // Two sets that are used in turn: a warp may still read one while others write the next.
  struct Shared {
    uint64_t words[2][kWarps];
  };

  __device__ explicit BlockTeam(Shared& shared) : shared_(shared) {}

  // Makes the blocks of a cluster the teams of one row.
  __device__ static BlockTeam of_cluster(Shared& shared) {
    BlockTeam team(shared);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(team.share_));
    asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(team.shares_));
#endif
    return team;
  }

  [[nodiscard]] __device__ static int size() { return kThreads; }

  template <typename Body>
  __device__ void each(int n, const Body& body) {
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) body(i);
    wait();
  }

  // Calls the body on the first warp only.
  template <typename Body>
  __device__ void few(int n, const Body& body) {
    if (warp() != 0) return;
    if (lane() < n) body(lane());
    __syncwarp();
  }

  template <typename Value, typename Map>
  __device__ Value reduce(int n, const Map& map) {
    static_assert(sizeof(Value) <= sizeof(uint64_t));
    uint64_t* words = next_words();
    Value value;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) map(value, i);
    join_warp(value);
    if (lane() == 0) memcpy(&words[warp()], &value, sizeof(Value));
    wait();
    Value all;
    if (lane() < kWarps) memcpy(&all, &words[lane()], sizeof(Value));
    join_warp(all);
    return all;
  }

  // A warp processes a tile.
  template <typename Value, typename Visit, typename Map, typename Store>
  __device__ void tiles(int first, int last, const float* logits, int V, const Visit& visit,
                        const Map& map, const Store& store) {
    for (int tile = first + warp(); tile < last; tile += kWarps) {
      Value value;
      if (visit(tile)) {
        each_token(tile, logits, V, [&](int token, float logit) { map(value, token, logit); });
        join_warp(value);
      }
      if (lane() == 0) store(tile, value);
    }
    wait();
  }

  // As tiles(), with a second pass over each tile: its tokens stay in registers, and the next
  // tile's tokens are loaded meanwhile.
  template <typename Value, typename Other, typename Map, typename Again, typename Store>
  __device__ void tiles_twice(int first, int last, const float* logits, int V, const Map& map,
                              const Again& again, const Store& store) {
    float next[kEach];
    if (first + warp() < last) fetch((first + warp()) * kTileTokens + lane(), logits, V, next);
#pragma unroll 1
    for (int tile = first + warp(); tile < last; tile += kWarps) {
      float x[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = next[i];
      const int token = tile * kTileTokens + lane();
      if (tile + kWarps < last) fetch(token + kWarps * kTileTokens, logits, V, next);
      Value value;
#pragma unroll
      for (int i = 0; i < kEach; ++i) map(value, token + i * kWarp, x[i]);
      join_warp(value);
      Other other;
#pragma unroll
      for (int i = 0; i < kEach; ++i) again(other, value, x[i]);
      join_warp(other);
      if (lane() == 0) store(tile, value, other);
    }
    wait();
  }

  template <typename Value, typename TileAt, typename Map, typename End>
  __device__ void tokens(int n, const TileAt& tile_at, const float* logits, int V, const Map& map,
                         const End& end) {
    Value value;
#pragma unroll 1
    for (int i = warp(); i < n; i += kWarps) {
      const int tile = tile_at(i);
      if (tile < 0) continue;
      each_token(tile, logits, V, [&](int token, float logit) { map(value, token, logit); });
    }
    end(value);
    wait();
  }

  // Eight lanes process one index together.
  template <typename Value, typename Map, typename Store>
  __device__ void each_sum(int n, int m, const Map& map, const Store& store) {
    constexpr int kTogether = 8;
    const int own = static_cast<int>(threadIdx.x) / kTogether;
    const int part = static_cast<int>(threadIdx.x) % kTogether;
#pragma unroll 1
    for (int some = 0; some < n; some += kThreads / kTogether) {
      const int i = some + own;
      Value value;
#pragma unroll 1
      for (int j = part; i < n && j < m; j += kTogether) map(value, i, j);
#pragma unroll
      for (int distance = kTogether / 2; distance > 0; distance /= 2) {
        value.join(from_lane_xor(value, distance));
      }
      if (part == 0 && i < n) store(i, value);
    }
    wait();
  }

  template <typename TileAt, typename Holds, typename Take>
  __device__ void few_tokens(int n, const TileAt& tile_at, const float* logits, int V,
                             const Holds& holds, const Take& take) {
#pragma unroll 1
    for (int i = warp(); i < n; i += kWarps) {
      const int begin = tile_at(i) * kTileTokens + lane();
      float x[kEach];
      fetch(begin, logits, V, x);
      unsigned held = 0;
#pragma unroll
      for (int k = 0; k < kEach; ++k) held |= holds(x[k]) ? 1u << k : 0;
#pragma unroll 1
      for (; held != 0; held &= held - 1) {
        const int token = begin + (__ffs(static_cast<int>(held)) - 1) * kWarp;
        if (token < V) take(token, logits[token]);
      }
    }
    wait();
  }

  // A thread sums neighbouring elements, then the sums of lanes and of warps are added.
  template <typename At>
  __device__ uint64_t scan(int n, const At& at) {
    const int share = (n + kThreads - 1) / kThreads;
    const int begin = static_cast<int>(threadIdx.x) * share;
    const int end = begin + share < n ? begin + share : n;
    uint64_t own = 0;
#pragma unroll 1
    for (int i = begin; i < end; ++i) own += at(i);
    uint64_t with_lanes = own;
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const uint64_t lower = __shfl_up_sync(0xffffffffu, with_lanes, distance);
      if (lane() >= distance) with_lanes += lower;
    }
    uint64_t* words = next_words();
    if (lane() == kWarp - 1) words[warp()] = with_lanes;
    wait();
    uint64_t with_warps = lane() < kWarps ? words[lane()] : 0;
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const uint64_t lower = __shfl_up_sync(0xffffffffu, with_warps, distance);
      if (lane() >= distance) with_warps += lower;
    }
    const uint64_t all = __shfl_sync(0xffffffffu, with_warps, kWarp - 1);
    const uint64_t warps_before = __shfl_sync(0xffffffffu, with_warps, warp() > 0 ? warp() - 1 : 0);
    uint64_t sum = (warp() > 0 ? warps_before : 0) + with_lanes - own;
#pragma unroll 1
    for (int i = begin; i < end; ++i) {
      const uint64_t value = at(i);
      at(i) = sum;
      sum += value;
    }
    wait();
    return all;
  }

  // Every warp computes it by itself: a lane sums neighbouring elements.
  template <int kN, typename At>
  __device__ int locate(const At& at, uint64_t target) {
    static_assert(kN % kWarp == 0);
    constexpr int kOwn = kN / kWarp;
    using Sum = std::decay_t<decltype(at(0))>;
    Sum until[kOwn];
    Sum own = 0;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) until[i] = own += at(lane() * kOwn + i);
    Sum sum = own;
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const Sum lower = __shfl_up_sync(0xffffffffu, sum, distance);
      if (lane() >= distance) sum += lower;
    }
    const unsigned beyond = __ballot_sync(0xffffffffu, sum > target);
    if (beyond == 0) return kN;
    // Index after the lane's elements whose running sum does not exceed the target.
    int found = lane() * kOwn;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) found += sum - own + until[i] <= target ? 1 : 0;
    return __shfl_sync(0xffffffffu, found, __ffs(static_cast<int>(beyond)) - 1);
  }

  __device__ uint32_t add(uint32_t* sum, uint32_t value) { return atomicAdd(sum, value); }

  __device__ uint64_t add(uint64_t* sum, uint64_t value) {
    return atomicAdd(reinterpret_cast<unsigned long long*>(sum), value);
  }

  __device__ void raise(int32_t* most, int32_t value) { atomicMax(most, value); }

  [[nodiscard]] __device__ int share() const { return share_; }

  [[nodiscard]] __device__ int shares() const { return shares_; }

  template <typename Value>
  [[nodiscard]] __device__ Value* of_share(Value* value, int share) const {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (shares_ > 1) {
      Value* other;
      asm volatile("mapa.u64 %0, %1, %2;" : "=l"(other) : "l"(value), "r"(share));
      return other;
    }
#endif
    return value;
  }

  __device__ void meet() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    if (shares_ > 1) {
      asm volatile("barrier.cluster.arrive.release;" ::: "memory");
      asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
      return;
    }
#endif
    wait();
  }

  // The other blocks of the cluster end here; no block waits for them any more.
  [[nodiscard]] __device__ bool stays_alone() {
    shares_ = 1;
    return share_ == 0;
  }

 private:
  __device__ static void wait() {
    asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "n"(kThreads) : "memory");
  }

  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

  [[nodiscard]] __device__ static int warp() { return static_cast<int>(threadIdx.x) / kWarp; }

  [[nodiscard]] __device__ uint64_t* next_words() {
    turn_ ^= 1;
    return shared_.words[turn_];
  }

  static constexpr int kEach = kTileTokens / kWarp;  // tokens of a tile that a lane has

  // Loads the tokens of a tile: a lane has every 32nd token from its lane number on, so that whole
  // cache lines are read, eight at a time. Tokens beyond the end of the row become -infinity.
  __device__ static void fetch(int begin, const float* logits, int V, float (&x)[kEach]) {
    if (begin - lane() + kTileTokens <= V) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = logits[begin + i * kWarp];
      return;
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      x[i] = begin + i * kWarp < V ? logits[begin + i * kWarp] : -INFINITY;
    }
  }

  template <typename Body>
  __device__ static void each_token(int tile, const float* logits, int V, const Body& body) {
    const int begin = tile * kTileTokens + lane();
    if ((tile + 1) * kTileTokens > V) {
#pragma unroll 1
      for (int token = begin; token < V; token += kWarp) body(token, logits[token]);
      return;
    }
    float x[kEach];
    fetch(begin, logits, V, x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) body(begin + i * kWarp, x[i]);
  }

  Shared& shared_;
  int turn_ = 0;
  int share_ = 0;
  int shares_ = 1;
};

}  // namespace heddle::ops::sampling_steps
