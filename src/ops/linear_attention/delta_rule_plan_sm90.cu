// SPDX-License-Identifier: Apache-2.0
// Lists the chunks of a step: sequences of at least 64 rows, each cut at positions that are
// multiples of 64, at snapshots and at the step's end (delta_rule_chunk_grid.h).
// One block; a warp processes a sequence, a lane every 32nd chunk or stretch between snapshots.
// Thread 0 sums the counts. Bytes: 16 a chunk; latency-bound. The first launch of the chunked form
// (docs/delta-rule.md).
#include "ops/cuda/launch.cuh"
#include "ops/cuda/reduce.cuh"
#include "ops/linear_attention/delta_rule_chunks_sm90.cuh"
#include "ops/linear_attention/gated_delta_rule_sm90.h"

namespace heddle::ops::chunked {

namespace {

// Tokens of a sequence between two snapshots, or before the first or after the last one; chunks
// never extend over a snapshot.
struct Stretch {
  Span positions;
  int32_t snapshot_slot = -1;

  // Stretch i of sequence b; there is one more stretch than snapshots, and the last may be empty.
  __device__ static Stretch of(const DeviceBatch& batch, int32_t b, int32_t i) {
    const StateSnapshot* snapshots = batch.snapshots + batch.snapshot_start[b];
    const int32_t num_snapshots = batch.snapshot_start[b + 1] - batch.snapshot_start[b];
    if (i > num_snapshots) return {};
    const int32_t context_len = batch.context_lens[b];
    const int32_t num_rows = batch.query_start[b + 1] - batch.query_start[b];
    Stretch stretch{.positions = {.begin = context_len + (i > 0 ? snapshots[i - 1].num_tokens : 0),
                                  .end = context_len +
                                         (i < num_snapshots ? snapshots[i].num_tokens : num_rows)}};
    if (i < num_snapshots) stretch.snapshot_slot = snapshots[i].slot;
    return stretch;
  }
};

// A warp lists the chunks of a sequence; each lane looks up every 32nd stretch. Returns the number
// of chunks; if `chunks` is null, it only counts them.
__device__ inline int32_t list_chunks(const DeviceBatch& batch, int32_t b, Chunk* chunks,
                                      int lane) {
  const int32_t row_of_position_0 = batch.query_start[b] - batch.context_lens[b];
  const int32_t num_stretches = batch.snapshot_start[b + 1] - batch.snapshot_start[b] + 1;
  int32_t num_chunks = 0;
  for (int32_t first = 0; first < num_stretches; first += kWarp) {
    const Stretch own = Stretch::of(batch, b, first + lane);
    if (chunks == nullptr) {
      num_chunks += __reduce_add_sync(0xffffffffu, own.positions.num_chunks());
      continue;
    }
    for (int32_t i = 0; i < min(kWarp, num_stretches - first); ++i) {
      const Span positions{.begin = __shfl_sync(0xffffffffu, own.positions.begin, i),
                           .end = __shfl_sync(0xffffffffu, own.positions.end, i)};
      const int32_t snapshot_slot = __shfl_sync(0xffffffffu, own.snapshot_slot, i);
      const int32_t count = positions.num_chunks();
      for (int32_t c = lane; c < count; c += kWarp) {
        const Span chunk = positions.chunk(c);
        chunks[num_chunks + c] = {.first_row = row_of_position_0 + chunk.begin,
                                  .num_rows = chunk.size(),
                                  .snapshot_slot = c == count - 1 ? snapshot_slot : -1};
      }
      num_chunks += count;
    }
  }
  return num_chunks;
}

// Lists the chunks of all sequences with enough rows: one block, a warp for each sequence. Launched
// once for each op; the lists are short.
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
  if (p.prepared == nullptr) return;
  const int32_t num_flags = p.chunk_start[total] * p.num_key_heads;
  for (int i = static_cast<int>(threadIdx.x); i < num_flags; i += static_cast<int>(blockDim.x)) {
    p.prepared[i] = 0;
  }
}

}  // namespace

Status plan_chunks(CudaContext& context, const Params& params) {
  return launch(context, "gated_delta_rule_plan", plan_kernel, 1, 1024, params);
}

}  // namespace heddle::ops::chunked
