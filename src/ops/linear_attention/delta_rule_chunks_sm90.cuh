// SPDX-License-Identifier: Apache-2.0
// The chunked gated delta rule on Hopper (gated_delta_rule_sm90.h, docs/delta-rule.md): the
// structures that its kernels share, and their launches, in the order in which an op calls them:
//   plan_chunks() > prepare_chunks() > scan_chunks(), or plan_chunks() > stream_chunks().
// Factors are 17 KiB a chunk and value head, written by prepare_chunks() and read by scan_chunks().
// Used for sequences of at least 64 rows; stream_chunks() for one sequence of few heads.
#pragma once

#include <cstdint>

#include <cuda.h>

#include "ops/context.h"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda/sm90/tiles.cuh"
#include "ops/linear_attention/delta_rule_chunk_grid.h"
#include "ops/linear_attention/snapshot_rows.cuh"

namespace heddle::ops::chunked {

using sm90::kTileBytes;

inline constexpr int kWidth = 128;          // Dk and Dv, channels of key and value heads
inline constexpr int kMostHeadsPerKey = 8;  // value heads that read one key head

// At most 64 tokens of one sequence that are computed together.
struct Chunk {
  int32_t first_row;
  int32_t num_rows;
  int32_t snapshot_slot;  // snapshot slot that gets the state after this chunk; -1: none
  int32_t unused;
};

// The results of prepare_chunks() that scan_chunks() reads, for one value head of one chunk.
struct Factors {
  uint8_t t[kTileBytes];       // the matrix T, swizzled: row i, column j
  uint8_t p[kTileBytes];       // the matrix P, stored like T
  float value_scale[kTokens];  // exp(Gc_i) r_k,i for token i
  float query_scale[kTokens];  // exp(Gc_i) r_q,i for token i
  float key_scale[kTokens];    // exp(Gc_last - Gc_i) r_k,i for token i
  float state_scale;           // exp(Gc_last), the decay of the state over the chunk
  Chunk chunk;
  int32_t padding[59];  // makes the size a multiple of 1024 bytes, for the bulk copies
};

static_assert(sizeof(Factors) == 2 * kTileBytes + 1024);

struct Params {
  DeviceBatch batch;
  int32_t num_sequences;  // number of sequences of the batch
  int32_t num_scanned;    // sequences with enough rows for this form
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
  int32_t* chunk_start;  // [num_scanned + 1]: first chunk of each scanned sequence
  int32_t* scanned;      // [num_scanned]: indices of the scanned sequences in the batch
  int32_t* num_listed;   // number of scanned sequences without padding
  // [chunk, key head]: set to 1 when the chunk's factors are written; null if no kernel waits for
  // that.
  int32_t* prepared;
  Factors* factors;  // [chunk, value head], written by prepare_chunks()
  CUtensorMap qkv;   // boxes of 64 rows and 64 columns of q, k and v
};

// Lists the chunks of all sequences with enough rows.
Status plan_chunks(CudaContext& context, const Params& params);

// Computes the factors of `num_chunks` chunks.
Status prepare_chunks(CudaContext& context, const Params& params, int64_t num_chunks);

// Computes y, the states after all chunks, and the snapshots.
Status scan_chunks(CudaContext& context, const Params& params);

// Whether the sequences and value heads are few enough for stream_chunks().
[[nodiscard]] bool streams_chunks(const CudaContext& context, int64_t num_sequences,
                                  int64_t num_value_heads);

// prepare_chunks() and scan_chunks() concurrently in one kernel. Needs Params::prepared.
Status stream_chunks(CudaContext& context, const Params& params);

}  // namespace heddle::ops::chunked
