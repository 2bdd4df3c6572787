// SPDX-License-Identifier: Apache-2.0
// grow_trees: trees of drafts, grown level by level where a network's logits are, so that the
// levels follow each other without the host; and the best of their candidates, which become the
// drafts. It is what speculative::TreeGrowth does on the host, with the same order among equals.
//
//   sample_rows -> grow_trees -> the next level -> ... -> select_drafts
//
// A level's candidates are the `topk` most likely tokens behind each of its rows, as good as the
// product of the probabilities on their way. The best `topk` of them are the rows of the next
// level.
//
// Li et al., "EAGLE-2", arXiv:2406.16858.
//
// Cost: a launch each, of a block for each tree, which compares all candidates of a level, or of
// the tree, with each other: 256 of a level and 1,040 of a tree at most.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/context.h"
#include "ops/sampling/sample_rows.h"

namespace heddle::ops {

inline constexpr int32_t kMostBranches = 16;  // branches of a level
inline constexpr int32_t kMostGrown = 64;     // branches of all levels but the last, and drafts

// How large the trees are: those of speculative::TreeShape.
struct GrownShape {
  int32_t topk = 1;
  int32_t num_steps = 1;  // levels

  // Candidates of the first levels, as many as there are.
  [[nodiscard]] HEDDLE_HOST_DEVICE int32_t num_candidates(int32_t num_levels) const {
    return num_levels == 0 ? 0 : topk + (num_levels - 1) * topk * topk;
  }

  friend bool operator==(const GrownShape&, const GrownShape&) = default;
};

// Bytes for each tree, a multiple of 8.
[[nodiscard]] int64_t grown_tree_bytes(const GrownShape& shape);

// A tree at a level.
struct GrownTree {
  int32_t tree = 0;       // index of the tree's memory
  int32_t row = 0;        // first row in `sampled` of the level; the first level has one row
  int32_t next_row = -1;  // first row of the tree in the next level; -1: there is no next level

  friend bool operator==(const GrownTree&, const GrownTree&) = default;
};

// Pointers lead into memory of the context's device.
struct GrowTreesArgs {
  GrownShape shape;
  int32_t level = 0;  // level of the candidates
  const GrownTree* trees = nullptr;
  int64_t num_trees = 0;
  const SampledRow* sampled = nullptr;   // [R], with as many alternatives as topk
  const TopLogit* top_logits = nullptr;  // [R, 20]
  const int32_t* token_ids = nullptr;    // the id that each token stands for; null: itself
  std::byte* memory = nullptr;           // grown_tree_bytes() for each tree

  // Indexed by row of the next level: its id, the row of this level that it follows, and the nodes
  // that it sees, itself included: bit level * topk + i stands for the i-th branch of a level.
  int32_t* ids = nullptr;
  int32_t* parent_rows = nullptr;
  uint64_t* masks = nullptr;
};

struct SelectedTree {
  int32_t tree = 0;
  int32_t num_levels = 0;  // levels that the tree has
  int32_t wanted = 0;      // drafts at most, up to kMostGrown

  friend bool operator==(const SelectedTree&, const SelectedTree&) = default;
};

struct SelectedDrafts {
  int32_t count = 0;
  int32_t tokens[kMostGrown] = {};
  int32_t parents[kMostGrown] = {};  // as in speculative::Drafts
};

struct SelectDraftsArgs {
  GrownShape shape;
  const SelectedTree* trees = nullptr;
  int64_t num_trees = 0;
  const std::byte* memory = nullptr;
  SelectedDrafts* selected = nullptr;  // [num_trees], may be pinned memory of the host
};

// Error: kDeviceLost.
Status grow_trees(Context& context, const GrowTreesArgs& args);
Status select_drafts(Context& context, const SelectDraftsArgs& args);

Status grow_trees_cpu(CpuContext& context, const GrowTreesArgs& args);
Status grow_trees_cuda(CudaContext& context, const GrowTreesArgs& args);
Status select_drafts_cpu(CpuContext& context, const SelectDraftsArgs& args);
Status select_drafts_cuda(CudaContext& context, const SelectDraftsArgs& args);

}  // namespace heddle::ops
