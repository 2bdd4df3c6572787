// SPDX-License-Identifier: Apache-2.0
// WeightCut: how the ranks of a tensor-parallel or expert-parallel group share a weight, as data
// next to the weight's shape. The weight is cut along one dimension. A weight that joins several
// projections is cut part by part, so that each rank has its heads of all of them:
//
//   qkv_proj [(16 + 2 + 2) * 128, H]    kRows: {2048, unit 128}, {256, unit 128, kCopied} twice
//   o_proj   [H, 2048]                  kColumns: {2048, unit 128}
//   w13      [E, 2 I, H]                kWholeExperts, or within each expert kRows: {I}, {I}
//
// With a weight that is cut by columns, each rank computes one term of a sum over the ranks. The
// bias, which every rank has, is added once.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/status.h>

namespace heddle::checkpoint {

enum class CutKind : uint8_t {
  kNone,  // not cut: every rank has the whole weight
  kRows,
  kColumns,
  kWholeExperts,  // cut along dimension 0: each rank has some experts as a whole
};

// How the units of a part are shared.
enum class PartCut : uint8_t {
  kEqual,   // the same number for each rank
  kCopied,  // as kEqual, but if there are fewer units than ranks, several ranks have copies of a
            // unit: key heads
  kRagged,  // the last ranks have fewer units, or none: the tokens of a vocabulary
  kWhole,   // every rank has the whole part: a router that is joined with other projections
};

// Consecutive rows or columns that are cut in the same way.
struct CutPart {
  int64_t size = 0;
  int64_t unit = 1;  // rows or columns that stay together, such as a head's; divides size unless
                     // kRagged
  PartCut cut = PartCut::kEqual;

  friend bool operator==(const CutPart&, const CutPart&) = default;
};

struct WeightCut {
  CutKind kind = CutKind::kNone;
  std::vector<CutPart> parts = {};  // parts of the rows or columns, end to end
  // For kWholeExperts: how the ranks share each expert's matrix if every rank has every expert;
  // `parts` then describes that matrix. kRows, kColumns or, for a vector that is added once, kNone.
  CutKind within = CutKind::kNone;

  friend bool operator==(const WeightCut&, const WeightCut&) = default;
};

// A range of a weight's rows, columns or experts.
struct CutRange {
  int64_t first = 0;
  int64_t count = 0;

  friend bool operator==(const CutRange&, const CutRange&) = default;
};

// The rows or columns that rank `rank` of `num_ranks` has, a range for each part in order. Error:
// kInvalidArgument, naming the part's size and unit, if the ranks do not divide a part.
Result<std::vector<CutRange>> ranges_of_rank(const std::vector<CutPart>& parts, int64_t rank,
                                             int64_t num_ranks);

}  // namespace heddle::checkpoint
