// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/sampling/row_finisher.h"
#include "ops/sampling/sample_row_steps.h"

namespace heddle::ops {

namespace {

using sampling_steps::BestLogit;
using sampling_steps::FinishShared;
using sampling_steps::LevelSums;
using sampling_steps::RowRequest;
using sampling_steps::Tables;

// A value of another lane, word by word.
template <typename Value>
__device__ Value from_lane_xor(const Value& value, int mask) {
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
__device__ void join_warp(Value& value) {
#pragma unroll
  for (int distance = kWarp / 2; distance > 0; distance /= 2) {
    value.join(from_lane_xor(value, distance));
  }
}

// Logits as whole numbers in the same order, of which a warp finds the largest at once; NaN, as
// max.NaN leaves it, is above all.
__device__ void join_warp(BestLogit& value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  const auto reordered = [](int bits) { return bits ^ (bits >> 31 & 0x7fffffff); };
  const int largest = __reduce_max_sync(0xffffffffu, reordered(__float_as_int(value.max)));
  value.max = __int_as_float(reordered(largest));
#else
  join_warp<BestLogit>(value);
#endif
}

// The team of sample_row_steps.h: a block of whole warps, or the first ones of a block that have a
// barrier of their own. Every phase ends with it.
template <int kThreads, int kBarrier = 0>
class BlockTeam {
 public:
  static constexpr int kWarps = kThreads / kWarp;

  // Two sets, in turn: a warp may still read one while others write the next.
  struct Shared {
    uint64_t words[2][kWarps];
  };

  __device__ explicit BlockTeam(Shared& shared) : shared_(shared) {}

  // The blocks of a cluster as shares of a row.
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

  // The first warp alone.
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

  // A warp takes a tile.
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

  // Likewise; a tile's tokens stay in registers, and the next tile's are fetched meanwhile.
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

  // Eight lanes take an i together.
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

  // A thread sums neighbours, then lanes and warps are summed.
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

  // Every warp by itself: a lane takes neighbours.
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
    int found = lane() * kOwn;  // past those of its own that do not exceed it
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

  // The other blocks of the cluster end; none waits for them any more.
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

  static constexpr int kEach = kTileTokens / kWarp;  // tokens of a lane

  // A lane takes every 32nd token of a tile, from its own first one: whole lines are read, eight at
  // a time. -infinity in place of tokens that the row does not have.
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

struct Params {
  Tables tables;
  int chunks;  // blocks that share a row
  int tiles_per_chunk;
};

constexpr int kPassThreads = 256;
constexpr int kPassBlocks = 8;  // on a multiprocessor
constexpr int kFinishThreads = 1024;
constexpr int kDecideThreads = 256;
constexpr int kMostShares = 8;                    // any cluster may have so many blocks
constexpr int kWantedBlocks = kPassBlocks * 132;  // fill a large GPU once

// The chunk of a row that is a block's.
struct Chunk {
  int64_t r;
  int first, last;  // tiles

  __device__ static Chunk of(const Params& p) {
    const auto chunks = static_cast<unsigned>(p.chunks);
    const int first = static_cast<int>(blockIdx.x % chunks) * p.tiles_per_chunk;
    return {.r = blockIdx.x / chunks,
            .first = first,
            .last = min(first + p.tiles_per_chunk, p.tables.tiles())};
  }
};

// A block owns a run of tiles of a row, a warp one tile at a time. Reads 4 bytes a token, and
// writes them where the row is edited.
__global__ void __launch_bounds__(kPassThreads, kPassBlocks)
    maxima_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ BlockTeam<kPassThreads>::Shared shared;
  BlockTeam<kPassThreads> team(shared);
  const Chunk chunk = Chunk::of(p);
  sampling_steps::find_tile_maxima(team, p.tables, chunk.r, p.tables.request(chunk.r), chunk.first,
                                   chunk.last);
}

// As above; about 35 operations a token beside the reading, which is the cache's. The row's maximum
// is taken from those of its tiles by every block: 2.4 KB of 151,936 logits. The row's request
// was written before the maxima's kernel began.
__global__ void __launch_bounds__(kPassThreads, kPassBlocks)
    sums_kernel(const __grid_constant__ Params p) {
  __shared__ BlockTeam<kPassThreads>::Shared shared;
  __shared__ LevelSums levels;
  BlockTeam<kPassThreads> team(shared);
  const Chunk chunk = Chunk::of(p);
  const RowRequest own = p.tables.request(chunk.r);
  wait_for_inputs();
  sampling_steps::sum_tiles(team, levels, p.tables, chunk.r, own, chunk.first, chunk.last);
}

// A block owns a row: latency of some fifteen phases, each a barrier. The other blocks of its
// cluster end at once but where the row is cut: then they read the tokens together.
__global__ void __launch_bounds__(kFinishThreads) finish_kernel(const __grid_constant__ Params p) {
  __shared__ BlockTeam<kFinishThreads>::Shared shared;
  // Without a constructor: shared memory is never initialised.
  __shared__ alignas(FinishShared) unsigned char finish[sizeof(FinishShared)];
  auto team = BlockTeam<kFinishThreads>::of_cluster(shared);
  const int64_t r = blockIdx.x / static_cast<unsigned>(team.shares());
  const RowRequest own = p.tables.request(r);
  wait_for_inputs();
  sampling_steps::finish_row<DrawKind::kAny>(team, *reinterpret_cast<FinishShared*>(finish),
                                             p.tables, r, own);
}

// The blocks of a cluster own a row, each a share of its tiles, and some warps of the first one
// finish it from what they found: its phases have little to do, and each is the longer the more
// warps take the same steps.
__global__ void __launch_bounds__(kFinishThreads) few_kernel(const __grid_constant__ Params p) {
  __shared__ BlockTeam<kFinishThreads>::Shared shared;
  __shared__ alignas(FinishShared) unsigned char finish_bytes[sizeof(FinishShared)];
  auto& finish = *reinterpret_cast<FinishShared*>(finish_bytes);
  auto team = BlockTeam<kFinishThreads>::of_cluster(shared);
  sampling_steps::begin_search(team, finish);
  wait_for_inputs();
  const int64_t r = blockIdx.x / static_cast<unsigned>(team.shares());
  const RowRequest own = p.tables.request(r);
  sampling_steps::find_tile_shares(team, p.tables, r, own,
                                   p.tables.tiles() * team.share() / team.shares(),
                                   p.tables.tiles() * (team.share() + 1) / team.shares());
  team.meet();
  if (team.share() != 0 || threadIdx.x >= kDecideThreads) return;
  using Few = BlockTeam<kDecideThreads, 1>;
  __shared__ Few::Shared few_shared;
  Few decide(few_shared);
  sampling_steps::finish_row<DrawKind::kFew>(decide, finish, p.tables, r, own);
}

// The best token of some, the first one of equals; -1 where one is not a number.
struct BestToken {
  float max = -INFINITY;
  int32_t token = 0x7fffffff;

  __device__ void take(float x, int32_t at) {
    if (x > max) {
      max = x;
      token = at;
    }
  }

  __device__ void join(const BestToken& other) {
    if (other.max > max || (other.max == max && other.token < token)) *this = other;
  }
};

// The blocks of a cluster own a row, each a share of its tokens, eight of a thread at a time; the
// first one learns the others' best from their shared memory.
__global__ void __launch_bounds__(kFinishThreads) best_kernel(const __grid_constant__ Params p) {
  constexpr int kEach = 8;
  __shared__ BlockTeam<kFinishThreads>::Shared shared;
  __shared__ uint64_t bests[kMostShares];
  auto team = BlockTeam<kFinishThreads>::of_cluster(shared);
  team.meet();  // all blocks have begun
  wait_for_inputs();
  const Tables& t = p.tables;
  const int64_t r = blockIdx.x / static_cast<unsigned>(team.shares());
  const RowRequest own = t.request(r);
  if (own.row.slot < 0) {
    if (team.share() == 0)
      team.each(1, [&](int) { sampling_steps::tell(t, r, own.slot, SampledRow()); });
    return;
  }
  float* logits = t.logits_of(r);
  const int begin = t.tiles() * team.share() / team.shares() * kTileTokens;
  const int end = min(t.tiles() * (team.share() + 1) / team.shares() * kTileTokens, t.V);
  sampling_steps::edit_logits(team, t, own, logits, begin, end);
  BestToken own_best;
  bool has_nan = false;
  const auto take = [&](float x, int token) {
    has_nan |= x != x;
    own_best.take(x, token);
  };
  int token = begin + static_cast<int>(threadIdx.x);
  for (; token + (kEach - 1) * kFinishThreads < end; token += kEach * kFinishThreads) {
    float x[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) x[i] = logits[token + i * kFinishThreads];
#pragma unroll
    for (int i = 0; i < kEach; ++i) take(x[i], token + i * kFinishThreads);
  }
#pragma unroll 4
  for (; token < end; token += kFinishThreads) take(logits[token], token);
  if (has_nan) own_best = {.max = INFINITY, .token = -1};
  BestToken best = team.template reduce<BestToken>(
      kFinishThreads, [&](BestToken& found, int) { found = own_best; });
  if (team.shares() > 1) {
    team.each(1, [&](int) { memcpy(team.of_share(&bests[team.share()], 0), &best, sizeof(best)); });
    team.meet();
    if (team.share() != 0) return;
    best = team.template reduce<BestToken>(team.shares(), [&](BestToken& found, int i) {
      BestToken other;
      memcpy(&other, &bests[i], sizeof(other));
      found.join(other);
    });
  }
  team.each(1, [&](int) {
    const sampling_steps::BestLogit logit{.max = best.token < 0 ? NAN : best.max};
    SampledRow sampled;
    sampled.outcome = sampling_steps::outcome_of(logit);
    if (sampled.outcome == SampleOutcome::kDrawn) sampled.token = best.token;
    sampling_steps::publish(t, r, own, sampled);
  });
}

// Blocks that finish a row together: as many as leave none waiting for a multiprocessor. One where
// the code that runs was compiled for GPUs without clusters, as on those newer than Hopper.
int shares_of_row(const CudaContext& context, int64_t R) {
  if (!context.gpu.properties().kernels_start_early) return 1;
  int shares = kMostShares;
  while (shares > 1 && R * shares > context.gpu.properties().num_multiprocessors) shares /= 2;
  return shares;
}

}  // namespace

Status sample_rows_cuda(CudaContext& context, const SampleRowsArgs& args) {
  const int64_t R = args.logits.shape[0];
  const int64_t V = args.logits.shape[1];
  if (R == 0) return {};
  const int shares = shares_of_row(context, R);
  const auto launch_shares = [&](const char* name, auto* kernel, const Params& params) {
    return launch(context, name, kernel, grid_of(R * shares), dim3(kFinishThreads), params, 0,
                  static_cast<unsigned>(shares));
  };
  const Tables tables = Tables::of(args);
  if (context.gpu.properties().kernels_start_early) {
    const Params params{.tables = tables};
    if (args.kind == DrawKind::kBest) {
      return launch_shares("sample_rows best", best_kernel, params);
    }
    // Fewer tiles do not tell which tokens are the best kFewTokens.
    if (args.kind == DrawKind::kFew && RowScratch::tiles_of(V) >= kFewTokens) {
      return launch_shares("sample_rows few", few_kernel, params);
    }
  }
  const int64_t tiles = RowScratch::tiles_of(V);
  const int64_t warps = kPassThreads / kWarp;
  const int64_t wanted = std::clamp<int64_t>(kWantedBlocks / R, 1, ceil_div(tiles, warps));
  const int64_t tiles_per_chunk = ceil_div(tiles, wanted);
  const Params params{.tables = tables,
                      .chunks = static_cast<int>(ceil_div(tiles, tiles_per_chunk)),
                      .tiles_per_chunk = static_cast<int>(tiles_per_chunk)};
  const dim3 chunks = grid_of(R * params.chunks);
  HEDDLE_RETURN_IF_ERROR(
      launch(context, "sample_rows maxima", maxima_kernel, chunks, dim3(kPassThreads), params));
  HEDDLE_RETURN_IF_ERROR(
      launch(context, "sample_rows sums", sums_kernel, chunks, dim3(kPassThreads), params));
  return launch_shares("sample_rows finish", finish_kernel, params);
}

}  // namespace heddle::ops
