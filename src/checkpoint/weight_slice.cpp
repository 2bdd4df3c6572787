// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_slice.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"

namespace heddle::checkpoint {

namespace {

// A contiguous range of a weight's elements, and the offset of its copy in the rank's slice.
struct Taken {
  int64_t first = 0;
  int64_t count = 0;
  int64_t target = 0;
};

// The element ranges of the weight that a share consists of, in order.
std::vector<Taken> taken_of(const Shape& shape, const WeightShare& share) {
  int64_t outer = 1;
  int64_t inner = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i < share.dimension) outer *= shape[i];
    if (i > share.dimension) inner *= shape[i];
  }
  const int64_t size = shape[share.dimension];
  std::vector<Taken> taken;
  int64_t target = 0;
  for (int64_t o = 0; o < outer; ++o) {
    for (const CutRange& range : share.ranges) {
      const int64_t count = range.count * inner;
      taken.push_back({(o * size + range.first) * inner, count, target});
      target += count;
    }
  }
  return taken;
}

// Returns the piece with only those rows that are in `taken`.
HubPiece rows_taken(const HubPiece& piece, const std::vector<Taken>& taken) {
  HubPiece part{.tensor = piece.tensor, .runs = {}, .form = piece.form, .columns = piece.columns};
  const int64_t width = row_width(piece);
  for (const RowRun& run : piece.runs) {
    const auto first = std::ranges::partition_point(taken, [&](const Taken& range) {
      return range.first + range.count <= run.target_row * width;
    });
    const int64_t run_end = run.target_row + run.num_rows;
    for (auto range = first; range != taken.end() && range->first < run_end * width; ++range) {
      HEDDLE_CHECK(range->first % width == 0 && range->count % width == 0);
      const int64_t begin = std::max(run.target_row, range->first / width);
      const int64_t end = std::min(run_end, (range->first + range->count) / width);
      if (begin >= end) continue;
      const int64_t skipped = begin - run.target_row;
      part.runs.push_back({.source_row = run.source_row + skipped * run.source_step,
                           .target_row = begin + (range->target - range->first) / width,
                           .num_rows = end - begin,
                           .source_step = run.source_step,
                           .rows_before = run.rows_before + skipped,
                           .rows_after = run.rows_after + run_end - end});
    }
  }
  return part;
}

std::vector<CutPart> whole_dimension(const Shape& shape, int dimension, PartCut cut) {
  return {{.size = shape[dimension], .cut = cut}};
}

}  // namespace

CutRange own_range(const CutPart& part, const Rank& rank) {
  return ranges_of_rank({part}, rank.index, rank.ranks.count).value().front();
}

int64_t WeightShare::size() const {
  int64_t sum = 0;
  for (const CutRange& range : ranges) sum += range.count;
  return sum;
}

Result<std::optional<WeightShare>> share_of(const WeightSpec& spec, int64_t rank,
                                            const Ranks& ranks) {
  const WeightCut& cut = spec.cut;
  const bool has_experts = cut.kind == CutKind::kWholeExperts;
  const bool divides_experts = has_experts && spec.shape[0] % ranks.count == 0;
  const CutKind kind = has_experts ? cut.within : cut.kind;
  const bool is_whole =
      !divides_experts && (kind == CutKind::kNone || (has_experts && ranks.exact));
  if (ranks.count == 1 || is_whole) return std::optional<WeightShare>();
  WeightShare share;
  std::vector<CutPart> parts;
  if (divides_experts) {
    parts = whole_dimension(spec.shape, 0, PartCut::kEqual);
  } else if (kind == CutKind::kColumns && ranks.exact) {
    parts = whole_dimension(spec.shape, 0, PartCut::kRagged);
  } else {
    parts = cut.parts;
    share.dimension = (has_experts ? 1 : 0) + (kind == CutKind::kColumns ? 1 : 0);
  }
  Result<std::vector<CutRange>> ranges = ranges_of_rank(parts, rank, ranks.count);
  if (!ranges.ok()) return ranges.status().with_context(spec.name);
  share.ranges = std::move(ranges).value();
  return std::optional(std::move(share));
}

Result<WeightSpec> sliced(const WeightSpec& spec, int64_t rank, const Ranks& ranks) {
  HEDDLE_ASSIGN_OR_RETURN(const std::optional<WeightShare> share, share_of(spec, rank, ranks));
  WeightSpec slice = spec;
  slice.cut = {};
  if (!share) return slice;
  std::vector<int64_t> dims(spec.shape.dims().begin(), spec.shape.dims().end());
  dims[static_cast<size_t>(share->dimension)] = share->size();
  slice.shape = Shape(dims);
  const CutKind kind = spec.cut.kind == CutKind::kWholeExperts ? spec.cut.within : spec.cut.kind;
  if (share->dimension > 0 && kind == CutKind::kColumns) {
    HEDDLE_CHECK(share->ranges.size() == 1 && share->dimension == spec.shape.rank() - 1);
    for (Assembly& assembly : slice.alternatives) {
      for (HubPiece& piece : assembly) {
        HEDDLE_CHECK(!piece.columns && row_width(piece) == spec.shape[share->dimension]);
        piece.columns = share->ranges.front();
      }
    }
    return slice;
  }
  const std::vector<Taken> taken = taken_of(spec.shape, *share);
  for (Assembly& assembly : slice.alternatives) {
    for (HubPiece& piece : assembly) piece = rows_taken(piece, taken);
  }
  return slice;
}

Result<std::vector<WeightSpec>> sliced(std::span<const WeightSpec> specs, int64_t rank,
                                       const Ranks& ranks) {
  std::vector<WeightSpec> slices;
  for (const WeightSpec& spec : specs) {
    HEDDLE_ASSIGN_OR_RETURN(WeightSpec slice, sliced(spec, rank, ranks));
    slices.push_back(std::move(slice));
  }
  return slices;
}

namespace {

// Checks that the ranks divide every weight, and that each rank has a part of every cut weight.
Status check_shares(std::span<const WeightSpec> specs, const Ranks& ranks) {
  for (const WeightSpec& spec : specs) {
    HEDDLE_ASSIGN_OR_RETURN(const auto last, share_of(spec, ranks.count - 1, ranks));
    if (!last || last->size() > 0) continue;
    return invalid_argument(
        fmt::format("{}: {} rows or columns leave nothing for the last of {} ranks", spec.name,
                    spec.shape[last->dimension], ranks.count));
  }
  return {};
}

}  // namespace

std::vector<Status> legal_ranks(std::span<const WeightSpec> specs, bool exact) {
  std::vector<Status> legal;
  for (int64_t count = 1; count <= kMaxRanks; ++count) {
    legal.push_back(check_shares(specs, {count, exact}));
  }
  return legal;
}

}  // namespace heddle::checkpoint
