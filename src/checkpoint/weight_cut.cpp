// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_cut.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::checkpoint {

namespace {

Status does_not_divide(const CutPart& part, int64_t num_ranks) {
  return invalid_argument(
      fmt::format("{} rows or columns have {} units of {}, which {} ranks do not divide", part.size,
                  part.size / part.unit, part.unit, num_ranks));
}

// The rank's range within one part.
Result<CutRange> range_of_rank(const CutPart& part, int64_t rank, int64_t num_ranks) {
  if (part.cut == PartCut::kWhole) return CutRange{.first = 0, .count = part.size};
  const int64_t unit = part.unit;
  if (part.cut == PartCut::kRagged) {
    const int64_t units = (part.size + unit - 1) / unit;
    const int64_t each = (units + num_ranks - 1) / num_ranks * unit;
    const int64_t first = std::min(rank * each, part.size);
    return CutRange{.first = first, .count = std::min(each, part.size - first)};
  }
  const int64_t units = part.size / unit;
  if (part.size % unit != 0) return does_not_divide(part, num_ranks);
  if (part.cut == PartCut::kCopied && units < num_ranks) {
    if (num_ranks % units != 0) return does_not_divide(part, num_ranks);
    return CutRange{.first = rank * units / num_ranks * unit, .count = unit};
  }
  if (units % num_ranks != 0) return does_not_divide(part, num_ranks);
  const int64_t each = part.size / num_ranks;
  return CutRange{.first = rank * each, .count = each};
}

}  // namespace

Result<std::vector<CutRange>> ranges_of_rank(const std::vector<CutPart>& parts, int64_t rank,
                                             int64_t num_ranks) {
  HEDDLE_CHECK(rank >= 0 && rank < num_ranks);
  std::vector<CutRange> ranges;
  int64_t part_begin = 0;
  for (const CutPart& part : parts) {
    HEDDLE_ASSIGN_OR_RETURN(CutRange range, range_of_rank(part, rank, num_ranks));
    range.first += part_begin;
    ranges.push_back(range);
    part_begin += part.size;
  }
  return ranges;
}

}  // namespace heddle::checkpoint
