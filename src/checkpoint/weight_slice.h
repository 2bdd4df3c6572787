// SPDX-License-Identifier: Apache-2.0
// Computes the slice of each weight that one rank of a tensor-parallel group holds. A slice is a
// WeightSpec with fewer rows, columns or experts than the model's. Each rank loads only its slices:
// load_weights() reads the parts of the hub's tensors that it needs, also of quantised ones.
//
//   WeightCut           by default                        in exact mode
//   kNone               all                               all
//   kRows               its rows                          its rows
//   kColumns            its columns: a term of a sum      rows of the output, all columns: no sum
//                                                         crosses ranks
//   kWholeExperts       its experts where the ranks divide their number, else
//                       a share of each one's width       all experts
//
// Threading: pure functions of values.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/weight_map.h"

namespace heddle::checkpoint {

inline constexpr int64_t kMaxRanks = 8;  // the most ranks of a group: the GPUs of one host

struct Ranks {
  int64_t count = 1;
  bool exact = false;
};

// One rank of a group.
struct Rank {
  int64_t index = 0;
  Ranks ranks = {};

  [[nodiscard]] bool is_alone() const { return ranks.count == 1; }
};

// The range of rows, columns or heads that the rank has of one part of a weight. The ranks must
// divide the part (checked).
[[nodiscard]] CutRange own_range(const CutPart& part, const Rank& rank);

// The ranges of one dimension of a weight that a rank has, in its order.
struct WeightShare {
  int dimension = 0;
  std::vector<CutRange> ranges;

  [[nodiscard]] int64_t size() const;
};

// The share of rank `rank`; none if the rank has the whole weight. Error: kInvalidArgument, naming
// the weight and the sizes that the ranks do not divide.
Result<std::optional<WeightShare>> share_of(const WeightSpec& spec, int64_t rank,
                                            const Ranks& ranks);

// The weight as rank `rank` loads it, without a cut. Hub tensors that the rank does not use remain
// as pieces without runs, so that every rank reports the same tensors as missing or unexpected.
// Error: as share_of().
Result<WeightSpec> sliced(const WeightSpec& spec, int64_t rank, const Ranks& ranks);

// The slices of all weights for the rank.
Result<std::vector<WeightSpec>> sliced(std::span<const WeightSpec> specs, int64_t rank,
                                       const Ranks& ranks);

// For 1 to kMaxRanks ranks, at index count - 1: OK, or the error for the first weight that they do
// not divide or that leaves one of them without rows or columns.
[[nodiscard]] std::vector<Status> legal_ranks(std::span<const WeightSpec> specs, bool exact);

}  // namespace heddle::checkpoint
