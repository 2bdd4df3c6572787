// SPDX-License-Identifier: Apache-2.0
// grow_trees: grows trees of drafts level by level on the device that has the draft network's
// logits, so that the levels are computed without waiting for the host. select_drafts then chooses
// the best candidates of each tree as drafts. Both compute what speculative::TreeGrowth computes on
// the host, with the same order among equal scores.
//
//   sample_rows -> grow_trees -> the next level -> ... -> select_drafts
//
// The candidates of a level are the `topk` most likely next tokens of each of its rows. A
// candidate's score is the product of the probabilities on its path. The best `topk` candidates
// become the rows of the next level.
//
// Li et al., "EAGLE-2", arXiv:2406.16858.
//
// Cost: one launch for each function with one block for each tree, which compares all candidates
// with each other: at most 256 of a level (grow_trees) and 1,040 of a tree (select_drafts).
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/context.h"
#include "ops/sampling/sample_rows.h"

namespace heddle::ops {

inline constexpr int32_t kMostBranches = 16;  // most branches of a level
// most branches of all levels but the last, and most drafts of a tree
inline constexpr int32_t kMostGrown = 64;

// The size of the trees, as in speculative::TreeShape.
struct GrownShape {
  int32_t topk = 1;
  int32_t num_steps = 1;  // number of levels

  // Number of candidates that the first `num_levels` levels have together.
  [[nodiscard]] HEDDLE_HOST_DEVICE int32_t num_candidates(int32_t num_levels) const {
    return num_levels == 0 ? 0 : topk + (num_levels - 1) * topk * topk;
  }

  friend bool operator==(const GrownShape&, const GrownShape&) = default;
};

// Bytes of memory that each tree needs, a multiple of 8.
[[nodiscard]] int64_t grown_tree_bytes(const GrownShape& shape);

// A tree that grows by a level.
struct GrownTree {
  int32_t tree = 0;       // index of the tree in `memory`
  int32_t row = 0;        // the tree's first row of this level in `sampled`; level 0 has one row
  int32_t next_row = -1;  // the tree's first row of the next level; -1: there is no next level

  friend bool operator==(const GrownTree&, const GrownTree&) = default;
};

// All pointers are into memory of the context's device.
struct GrowTreesArgs {
  GrownShape shape;
  int32_t level = 0;  // level whose candidates are computed
  const GrownTree* trees = nullptr;
  int64_t num_trees = 0;
  const SampledRow* sampled = nullptr;   // [R]: sampled rows, each with topk alternatives
  const TopLogit* top_logits = nullptr;  // [R, 20]: the most likely tokens of each row
  // maps a token of the draft network to its id in the vocabulary; null: they are equal
  const int32_t* token_ids = nullptr;
  std::byte* memory = nullptr;  // memory of the trees, grown_tree_bytes() for each

  // Outputs, indexed by row of the next level: the row's token id, the row of this level that it
  // follows, and the nodes that it sees, itself included, where bit level * topk + i means the i-th
  // branch of a level.
  int32_t* ids = nullptr;
  int32_t* parent_rows = nullptr;
  uint64_t* masks = nullptr;
};

struct SelectedTree {
  int32_t tree = 0;
  int32_t num_levels = 0;  // number of levels that the tree has
  int32_t wanted = 0;      // most drafts to select, up to kMostGrown

  friend bool operator==(const SelectedTree&, const SelectedTree&) = default;
};

struct SelectedDrafts {
  int32_t count = 0;
  int32_t tokens[kMostGrown] = {};
  int32_t parents[kMostGrown] = {};  // index of each draft's parent, as in speculative::Drafts
};

struct SelectDraftsArgs {
  GrownShape shape;
  const SelectedTree* trees = nullptr;
  int64_t num_trees = 0;
  const std::byte* memory = nullptr;
  SelectedDrafts* selected = nullptr;  // [num_trees]; may be pinned host memory
};

// Error: kDeviceLost.
Status grow_trees(Context& context, const GrowTreesArgs& args);
Status select_drafts(Context& context, const SelectDraftsArgs& args);

Status grow_trees_cpu(CpuContext& context, const GrowTreesArgs& args);
Status grow_trees_cuda(CudaContext& context, const GrowTreesArgs& args);
Status select_drafts_cpu(CpuContext& context, const SelectDraftsArgs& args);
Status select_drafts_cuda(CudaContext& context, const SelectDraftsArgs& args);

}  // namespace heddle::ops
