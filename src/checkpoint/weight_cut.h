// SPDX-License-Identifier: Apache-2.0
// WeightCut: how the ranks of a tensor-parallel or expert-parallel group share a weight, as data
// beside its shape. The weight is cut along one dimension; a product of several projections is cut
// part by part, so that each rank has its heads of all of them:
//
//   qkv_proj [(16 + 2 + 2) * 128, H]    kRows: {2048, unit 128}, {256, unit 128, kCopied} twice
//   o_proj   [H, 2048]                  kColumns: {2048, unit 128}
//   w13      [E, 2 I, H]                kWholeExperts, or within each expert kRows: {I}, {I}
//
// The product of a weight that is cut by columns is a term of a sum over the ranks; its bias, which
// every rank has, is added once.
//
// Threading: values.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/status.h>

namespace heddle::checkpoint {

enum class CutKind : uint8_t {
  kNone,  // every rank has the whole weight
  kRows,
  kColumns,
  kWholeExperts,  // dimension 0
};

// How the units of a part are shared.
enum class PartCut : uint8_t {
  kEqual,   // the same number for each rank
  kCopied,  // as kEqual, but ranks share a unit's copies if there are fewer units than ranks: key
            // heads
  kRagged,  // the last ranks have fewer, or none: tokens of a vocabulary
  kWhole,   // every rank has all: a router within a larger product
};

// Neighbouring rows or columns.
struct CutPart {
  int64_t size = 0;
  int64_t unit = 1;  // rows or columns that stay together: a head's; divides size unless kRagged
  PartCut cut = PartCut::kEqual;

  friend bool operator==(const CutPart&, const CutPart&) = default;
};

struct WeightCut {
  CutKind kind = CutKind::kNone;
  std::vector<CutPart> parts = {};  // parts of the rows or columns, end to end
  // kWholeExperts: how ranks that have every expert share each one's matrix, `parts` being of it;
  // kRows, kColumns or, for a vector that is added once, kNone.
  CutKind within = CutKind::kNone;

  friend bool operator==(const WeightCut&, const WeightCut&) = default;
};

// Rows of a weight, or its columns, or experts.
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
