// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/sampling/sample_row_steps.h"

namespace heddle::ops {

namespace {

using sampling_steps::BestLogit;
using sampling_steps::FinishShared;
using sampling_steps::LevelSums;
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

// The team of sample_row_steps.h: a block of whole warps. Every phase ends with a barrier.
template <int kThreads>
class BlockTeam {
 public:
  static constexpr int kWarps = kThreads / kWarp;

  struct Shared {
    uint64_t words[2 * kWarps];
  };

  __device__ explicit BlockTeam(Shared& shared) : shared_(shared) {}

  [[nodiscard]] __device__ static int size() { return kThreads; }

  template <typename Body>
  __device__ void each(int n, const Body& body) {
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) body(i);
    __syncthreads();
  }

  // The first warp alone.
  template <typename Body>
  __device__ void few(int n, const Body& body) {
    if (warp() != 0) return;
    if (lane() < n) body(lane());
    __syncwarp();
  }

  template <typename Body>
  __device__ void threads(const Body& body) {
    body(static_cast<int>(threadIdx.x));
    __syncthreads();
  }

  template <typename Value, typename Map>
  __device__ Value reduce(int n, const Map& map) {
    static_assert(sizeof(Value) <= 8);
    Value value;
    for (int i = static_cast<int>(threadIdx.x); i < n; i += kThreads) map(value, i);
    join_warp(value);
    if (lane() == 0) memcpy(&shared_.words[warp()], &value, sizeof(Value));
    __syncthreads();
    Value all;
    if (lane() < kWarps) memcpy(&all, &shared_.words[lane()], sizeof(Value));
    join_warp(all);
    __syncthreads();
    return all;
  }

  // A warp takes a tile, a lane every 32nd token of it: whole lines are read, eight at a time.
  template <typename Value, typename Visit, typename Map, typename Store>
  __device__ void tiles(int first, int last, const float* logits, int V, const Visit& visit,
                        const Map& map, const Store& store) {
    constexpr int kEach = kTileTokens / kWarp;
    for (int tile = first + warp(); tile < last; tile += kWarps) {
      Value value;
      if (visit(tile)) {
        const int begin = tile * kTileTokens + lane();
        if ((tile + 1) * kTileTokens <= V) {
          float x[kEach];
#pragma unroll
          for (int i = 0; i < kEach; ++i) x[i] = logits[begin + i * kWarp];
#pragma unroll
          for (int i = 0; i < kEach; ++i) map(value, begin + i * kWarp, x[i]);
        } else {
          for (int token = begin; token < V; token += kWarp) map(value, token, logits[token]);
        }
        join_warp(value);
      }
      if (lane() == 0) store(tile, value);
    }
    __syncthreads();
  }

  // A thread sums neighbours, then lanes and warps are summed.
  template <typename At>
  __device__ uint64_t scan(int n, const At& at) {
    const int share = (n + kThreads - 1) / kThreads;
    const int begin = static_cast<int>(threadIdx.x) * share;
    const int end = begin + share < n ? begin + share : n;
    uint64_t own = 0;
    for (int i = begin; i < end; ++i) own += at(i);
    uint64_t with_lanes = own;
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const uint64_t lower = __shfl_up_sync(0xffffffffu, with_lanes, distance);
      if (lane() >= distance) with_lanes += lower;
    }
    if (lane() == kWarp - 1) shared_.words[warp()] = with_lanes;
    __syncthreads();
    uint64_t with_warps = lane() < kWarps ? shared_.words[lane()] : 0;
#pragma unroll
    for (int distance = 1; distance < kWarp; distance *= 2) {
      const uint64_t lower = __shfl_up_sync(0xffffffffu, with_warps, distance);
      if (lane() >= distance) with_warps += lower;
    }
    const uint64_t all = __shfl_sync(0xffffffffu, with_warps, kWarp - 1);
    const uint64_t warps_before = __shfl_sync(0xffffffffu, with_warps, warp() > 0 ? warp() - 1 : 0);
    uint64_t sum = (warp() > 0 ? warps_before : 0) + with_lanes - own;
    for (int i = begin; i < end; ++i) {
      const uint64_t value = at(i);
      at(i) = sum;
      sum += value;
    }
    __syncthreads();
    return all;
  }

  __device__ uint32_t add(uint32_t* sum, uint32_t value) { return atomicAdd(sum, value); }

  __device__ uint64_t add(uint64_t* sum, uint64_t value) {
    return atomicAdd(reinterpret_cast<unsigned long long*>(sum), value);
  }

  __device__ void raise(int32_t* most, int32_t value) { atomicMax(most, value); }

 private:
  [[nodiscard]] __device__ static int lane() { return static_cast<int>(threadIdx.x) % kWarp; }

  [[nodiscard]] __device__ static int warp() { return static_cast<int>(threadIdx.x) / kWarp; }

  Shared& shared_;
};

struct Params {
  Tables tables;
  int chunks;  // blocks that share a row
  int tiles_per_chunk;
};

constexpr int kPassThreads = 256;
constexpr int kFinishThreads = 1024;
constexpr int kWantedBlocks = 8 * 132;  // fill a large GPU once

// A block owns a run of tiles of a row, a warp one tile at a time. Reads 4 bytes a token, and
// writes them where the row is edited.
__global__ void __launch_bounds__(kPassThreads) maxima_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ BlockTeam<kPassThreads>::Shared shared;
  BlockTeam<kPassThreads> team(shared);
  const int64_t r = blockIdx.x / static_cast<unsigned>(p.chunks);
  const int first =
      static_cast<int>(blockIdx.x % static_cast<unsigned>(p.chunks)) * p.tiles_per_chunk;
  sampling_steps::find_tile_maxima(team, p.tables, r, first,
                                   min(first + p.tiles_per_chunk, p.tables.tiles()));
}

// As above; about 25 operations a token beside the reading, which is the cache's. The row's maximum
// is taken from those of its tiles by every block: 2.4 KB of 151,936 logits.
__global__ void __launch_bounds__(kPassThreads) sums_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ BlockTeam<kPassThreads>::Shared shared;
  __shared__ LevelSums levels;
  BlockTeam<kPassThreads> team(shared);
  const int64_t r = blockIdx.x / static_cast<unsigned>(p.chunks);
  const int first =
      static_cast<int>(blockIdx.x % static_cast<unsigned>(p.chunks)) * p.tiles_per_chunk;
  sampling_steps::sum_tiles(team, levels, p.tables, r, first,
                            min(first + p.tiles_per_chunk, p.tables.tiles()));
}

// A block owns a row: latency of some twenty phases, each a barrier.
__global__ void __launch_bounds__(kFinishThreads) finish_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ BlockTeam<kFinishThreads>::Shared shared;
  // Without a constructor: shared memory is never initialised.
  __shared__ alignas(FinishShared) unsigned char finish[sizeof(FinishShared)];
  BlockTeam<kFinishThreads> team(shared);
  sampling_steps::finish_row(team, *reinterpret_cast<FinishShared*>(finish), p.tables, blockIdx.x);
}

}  // namespace

Status sample_rows_cuda(CudaContext& context, const SampleRowsArgs& args) {
  const int64_t R = args.logits.shape[0];
  const int64_t V = args.logits.shape[1];
  if (R == 0) return {};
  const int64_t tiles = RowScratch::tiles_of(V);
  const int64_t warps = kPassThreads / kWarp;
  const int64_t wanted = std::clamp<int64_t>(ceil_div(kWantedBlocks, R), 1, ceil_div(tiles, warps));
  const int64_t tiles_per_chunk = ceil_div(tiles, wanted);
  const Params params{.tables = Tables::of(args),
                      .chunks = static_cast<int>(ceil_div(tiles, tiles_per_chunk)),
                      .tiles_per_chunk = static_cast<int>(tiles_per_chunk)};
  const dim3 chunks = grid_of(R * params.chunks);
  HEDDLE_RETURN_IF_ERROR(
      launch(context, "sample_rows maxima", maxima_kernel, chunks, dim3(kPassThreads), params));
  HEDDLE_RETURN_IF_ERROR(
      launch(context, "sample_rows sums", sums_kernel, chunks, dim3(kPassThreads), params));
  return launch(context, "sample_rows finish", finish_kernel, grid_of(R), dim3(kFinishThreads),
                params);
}

}  // namespace heddle::ops
