// SPDX-License-Identifier: Apache-2.0
// How one tree is computed in grow_trees and select_drafts, shared by the CUDA kernels and the CPU.
// A team of threads executes the steps: each(n, f) calls f(i) for every i in [0, n), divided among
// the threads; after it returns, all threads may read what was written.
#pragma once

#include <cmath>
#include <cstdint>

#include "ops/drafting/grow_trees.h"
#include "ops/sampling/sample_row_steps.h"
#include "ops/sampling/token_weight.h"

namespace heddle::ops::sampling_steps {

// Pointers to the memory of one tree.
struct GrownTreeMemory {
  uint64_t* masks;    // [topk]: tree masks of the branches of the last level
  float* scores;      // [candidates]: probability products; NaN if the candidate does not exist
  int32_t* tokens;    // [candidates]: token ids
  int32_t* branches;  // [topk]: candidate indices of the branches of the last level
  int32_t*
      // [1 + (num_steps - 1) * topk]: the candidate that candidates i * topk to i * topk + topk - 1
      // follow
      parent_groups;

  [[nodiscard]] HEDDLE_HOST_DEVICE static int32_t num_groups(const GrownShape& shape) {
    return 1 + (shape.num_steps - 1) * shape.topk;
  }

  // Bytes of one tree's memory, a multiple of 8.
  [[nodiscard]] HEDDLE_HOST_DEVICE static int64_t bytes(const GrownShape& shape) {
    const int64_t words =
        2 * shape.num_candidates(shape.num_steps) + shape.topk + num_groups(shape);
    return 8 * shape.topk + 4 * (words + words % 2);
  }

  [[nodiscard]] HEDDLE_HOST_DEVICE static GrownTreeMemory of(std::byte* memory,
                                                             const GrownShape& shape,
                                                             int32_t tree) {
    const int32_t num_candidates = shape.num_candidates(shape.num_steps);
    GrownTreeMemory own{};
    own.masks = reinterpret_cast<uint64_t*>(memory + tree * bytes(shape));
    own.scores = reinterpret_cast<float*>(own.masks + shape.topk);
    own.tokens = reinterpret_cast<int32_t*>(own.scores + num_candidates);
    own.branches = own.tokens + num_candidates;
    own.parent_groups = own.branches + shape.topk;
    return own;
  }
};

// Whether candidate a ranks before b: higher scores first, equal scores by index, candidates that
// do not exist last.
[[nodiscard]] HEDDLE_TEAM inline bool goes_before(const float* scores, int32_t a, int32_t b) {
  const float x = scores[a], y = scores[b];
  const bool has_x = x == x, has_y = y == y;
  if (!has_x || !has_y) return has_x == has_y ? a < b : has_x;
  return x != y ? x > y : a < b;
}

// Number of the candidates [first, end) that rank before candidate i.
[[nodiscard]] HEDDLE_TEAM inline int32_t rank_of(const float* scores, int32_t i, int32_t first,
                                                 int32_t end) {
  int32_t rank = 0;
  for (int32_t other = first; other < end; ++other) rank += goes_before(scores, other, i) ? 1 : 0;
  return rank;
}

[[nodiscard]] HEDDLE_TEAM inline float probability_of(const SampledRow& row, float logit) {
  const float sum = static_cast<float>(row.total) * 0x1p-44f;
  return exp_of_negative(logit - row.max) / sum;
}

// Memory that the team shares: masks and candidate indices of up to topk branches.
struct GrowScratch {
  uint64_t masks[kMostBranches];
  int32_t branches[kMostBranches];
};

template <typename Team>
HEDDLE_TEAM void grow_tree(Team& team, GrowScratch& scratch, const GrowTreesArgs& args,
                           const GrownTree& tree) {
  const int32_t topk = args.shape.topk;
  const bool is_first = args.level == 0;
  const int32_t first = args.shape.num_candidates(args.level);
  const int32_t count = is_first ? topk : topk * topk;
  const GrownTreeMemory own = GrownTreeMemory::of(args.memory, args.shape, tree.tree);
  team.each(count, [&](int i) {
    const int32_t group = i / topk;
    const SampledRow& row = args.sampled[tree.row + group];
    const TopLogit& top = args.top_logits[(tree.row + group) * kMostTopLogits + i % topk];
    const bool exists = row.outcome == SampleOutcome::kDrawn && i % topk < row.num_top_logits;
    const float before = is_first ? 1.0f : own.scores[own.branches[group]];
    own.scores[first + i] = exists ? rounded_product(before, probability_of(row, top.logit)) : NAN;
    const int32_t token = exists ? top.token : 0;
    own.tokens[first + i] = args.token_ids != nullptr ? args.token_ids[token] : token;
    if (i % topk != 0) return;
    const int32_t groups_before = is_first ? 0 : 1 + (args.level - 1) * topk;
    own.parent_groups[groups_before + group] = is_first ? -1 : own.branches[group];
  });
  team.each(count, [&](int i) {
    const int32_t rank = is_first ? i : rank_of(own.scores, first + i, first, first + count);
    if (rank >= topk) return;
    const int32_t from = is_first ? 0 : i / topk;
    scratch.branches[rank] = first + i;
    const int32_t node = args.level * topk + rank;
    scratch.masks[rank] = (is_first ? 0 : own.masks[from]) |
                          // Nodes of the last level have no bit.
                          (node < kMostGrown ? uint64_t{1} << node : 0);
    if (tree.next_row < 0) return;
    args.ids[tree.next_row + rank] = own.tokens[first + i];
    args.parent_rows[tree.next_row + rank] = tree.row + from;
    args.masks[tree.next_row + rank] = scratch.masks[rank];
  });
  team.each(topk, [&](int i) {
    own.branches[i] = scratch.branches[i];
    own.masks[i] = scratch.masks[i];
  });
}

// `kept` is memory that the team shares, with one entry for each candidate of the tree.
template <typename Team>
HEDDLE_TEAM void select_of_tree(Team& team, int32_t* kept, const SelectDraftsArgs& args,
                                const SelectedTree& tree, SelectedDrafts& selected) {
  const int32_t num_candidates = args.shape.num_candidates(tree.num_levels);
  const GrownTreeMemory own =
      GrownTreeMemory::of(const_cast<std::byte*>(args.memory), args.shape, tree.tree);
  team.each(num_candidates, [&](int i) {
    const bool exists = own.scores[i] == own.scores[i];
    kept[i] = exists && rank_of(own.scores, i, 0, num_candidates) < tree.wanted ? 1 : 0;
  });
  const auto place_of = [&](int32_t candidate) {
    int32_t place = 0;
    for (int32_t i = 0; i < candidate; ++i) place += kept[i];
    return place;
  };
  team.each(num_candidates, [&](int i) {
    if (i + 1 == num_candidates) selected.count = place_of(num_candidates);
    if (kept[i] == 0) return;
    const int32_t place = place_of(i);
    const int32_t parent = own.parent_groups[i / args.shape.topk];
    selected.tokens[place] = own.tokens[i];
    selected.parents[place] = parent < 0 ? -1 : place_of(parent);
  });
}

}  // namespace heddle::ops::sampling_steps
