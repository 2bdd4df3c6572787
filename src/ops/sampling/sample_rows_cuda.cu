// SPDX-License-Identifier: Apache-2.0
// Draws tokens from rows of logits (sample_rows.h): maxima of tiles, sums of weights, then a draw
// among the candidates. The passes are those of sample_row_steps.h; the kernels differ in which
// threads execute them. maxima_kernel, sums_kernel: a block processes a run of tiles of a row, a
// warp a tile of 256 tokens. finish_kernel, few_kernel, best_kernel: a block or a cluster processes
// a row; the last two do all passes in one launch. Bytes: 4 * V a row from memory, the second
// reading from the cache; 35 operations a token in sums. best_kernel is for greedy rows, few_kernel
// for a top_k of at most 64, both from compute capability 9.0 on; the other three, in three
// launches, for everything else.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/sampling/block_team.cuh"
#include "ops/sampling/row_finisher.h"
#include "ops/sampling/sample_row_steps.h"

namespace heddle::ops {

namespace {

using sampling_steps::BlockTeam;
using sampling_steps::FinishShared;
using sampling_steps::LevelSums;
using sampling_steps::RowRequest;
using sampling_steps::Tables;

struct Params {
  Tables tables;
  int chunks;  // blocks that share a row
  int tiles_per_chunk;
};

constexpr int kPassThreads = 256;
constexpr int kPassBlocks = 8;  // blocks of a pass on a multiprocessor
constexpr int kFinishThreads = 1024;
constexpr int kDecideThreads = 256;
constexpr int kMostShares = 8;                    // most blocks of a cluster that any GPU allows
constexpr int kWantedBlocks = kPassBlocks * 132;  // blocks that fill a large GPU once

// The run of tiles that a block processes, and its row.
struct Chunk {
  int64_t r;
  int first, last;  // range of tiles of the row

  __device__ static Chunk of(const Params& p) {
    const auto chunks = static_cast<unsigned>(p.chunks);
    const int first = static_cast<int>(blockIdx.x % chunks) * p.tiles_per_chunk;
    return {.r = blockIdx.x / chunks,
            .first = first,
            .last = min(first + p.tiles_per_chunk, p.tables.tiles())};
  }
};

// A block processes a run of tiles of a row, a warp one tile at a time. Reads 4 bytes a token, and
// writes them if the row is edited.
__global__ void __launch_bounds__(kPassThreads, kPassBlocks)
    maxima_kernel(const __grid_constant__ Params p) {
  wait_for_inputs();
  __shared__ BlockTeam<kPassThreads>::Shared shared;
  BlockTeam<kPassThreads> team(shared);
  const Chunk chunk = Chunk::of(p);
  sampling_steps::find_tile_maxima(team, p.tables, chunk.r, p.tables.request(chunk.r), chunk.first,
                                   chunk.last);
}

// Blocks and warps are as in maxima_kernel; about 35 operations a token; the logits come from the
// cache. Each block finds the row's maximum from the maxima of its tiles: 2.4 KB for 151,936
// logits. The row's request was written before maxima_kernel began.
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

// A block processes a row; the time is the latency of some fifteen phases, each of which ends with
// a barrier. The cluster's other blocks end at once unless the row is cut; then all read the
// tokens.
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

// The blocks of a cluster process a row, each a share of its tiles; then some warps of the first
// block finish the row from the results. Only some warps, because the remaining phases have little
// work, and each takes longer with more warps.
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

// The best of some tokens, the lowest id among equals; -1 if a logit is NaN.
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

// The blocks of a cluster share a row, eight tokens per thread at a time; the first one reads the
// others' results from their shared memory.
__global__ void __launch_bounds__(kFinishThreads) best_kernel(const __grid_constant__ Params p) {
  constexpr int kEach = 8;
  __shared__ BlockTeam<kFinishThreads>::Shared shared;
  __shared__ uint64_t bests[kMostShares];
  auto team = BlockTeam<kFinishThreads>::of_cluster(shared);
  team.meet();  // all blocks of the cluster have started
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

// Number of blocks that process a row together, chosen so that all of them run at once. It is one
// if the running code was compiled for GPUs without clusters, as on GPUs newer than Hopper.
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
    // With fewer tiles, their maxima do not tell which tokens are the best kFewTokens.
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
