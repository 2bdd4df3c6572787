// SPDX-License-Identifier: Apache-2.0
// Row plans for projections that checkpoints store interleaved, head by head, and that our kernels
// need separated. Reading such rows without separating them gives fluent nonsense, so the plans are
// data with tests.
#pragma once

#include <vector>

#include "checkpoint/weight_map.h"

namespace heddle::checkpoint {

// Heads of a gated delta network; num_value_heads is a multiple of num_key_heads.
struct DeltaNetHeads {
  int64_t num_key_heads = 0;
  int64_t num_value_heads = 0;
  int64_t key_dim = 0;    // width of one key (and query) head
  int64_t value_dim = 0;  // width of one value (and output gate) head
};

// in_proj_qkvz stores, per key head, [query | key | its value heads | their gates]; ours is
// [all queries | all keys | all values | all gates].
[[nodiscard]] std::vector<RowRun> deinterleave_qkvz_rows(const DeltaNetHeads& heads);

// in_proj_ba stores, per key head, [b of its value heads | a of them]; ours is [all b | all a].
[[nodiscard]] std::vector<RowRun> deinterleave_ba_rows(const DeltaNetHeads& heads);

// A gated attention's q_proj stores, per head, [query | gate]; ours is [all queries | all gates].
[[nodiscard]] std::vector<RowRun> split_query_gate_rows(int64_t num_heads, int64_t head_dim);

// A gate and an up projection whose rows alternate in the checkpoint, [num_blocks, (gate row | up
// row) x I]; ours is [num_blocks, all gate rows | all up rows]. The result has two runs per block.
[[nodiscard]] std::vector<RowRun> split_gate_up_rows(int64_t num_blocks, int64_t intermediate_size);

// The given runs, each with `offset` added to its target row.
[[nodiscard]] std::vector<RowRun> shifted(std::vector<RowRun> runs, int64_t offset);

}  // namespace heddle::checkpoint
