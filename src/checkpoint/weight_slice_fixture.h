// SPDX-License-Identifier: Apache-2.0
// For tests: checks that the slices of all ranks together give the model's weights.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "checkpoint/checkpoint_fixture.h"
#include "checkpoint/load_weights.h"
#include "checkpoint/weight_slice.h"
#include "quant/dequantise.h"

namespace heddle::checkpoint::testing {

// Converts a weight to floats; quantised weights are dequantised.
inline std::vector<float> numbers_of(const TensorView& weight) {
  if (weight.packed == nullptr) return floats(weight);
  const int64_t K = weight.shape[weight.shape.rank() - 1];
  std::vector<float> numbers(static_cast<size_t>(weight.num_elements()));
  for (const quant::PackedWeight::Part& part : weight.packed->parts) {
    float* const begin = numbers.data() + part.first_row * K;
    if (part.plain.data != nullptr) std::ranges::copy(floats(part.plain), begin);
    for (int64_t row = 0; row < part.packed.num_rows; ++row) {
      quant::dequantise_row(part.packed, row, 0, K, begin + row * K);
    }
  }
  return numbers;
}

// The dimension along which ranks share a weight, and its parts.
struct SharedDimension {
  int dimension = 0;
  std::vector<CutPart> parts;
};

// Returns none if every rank has the whole weight.
inline std::optional<SharedDimension> shared_dimension(const WeightSpec& spec, const Ranks& ranks) {
  const bool experts = spec.cut.kind == CutKind::kWholeExperts;
  if (experts && spec.shape[0] % ranks.count == 0) return SharedDimension{0, {{spec.shape[0]}}};
  const CutKind kind = experts ? spec.cut.within : spec.cut.kind;
  if (kind == CutKind::kNone || (experts && ranks.exact)) return std::nullopt;
  const bool columns = kind == CutKind::kColumns;
  if (columns && ranks.exact) {
    return SharedDimension{0, {{spec.shape[0], 1, PartCut::kRagged}}};
  }
  return SharedDimension{(experts ? 1 : 0) + (columns ? 1 : 0), spec.cut.parts};
}

// The number of ranks that hold a copy of each element of a part.
inline int64_t copies_of(const CutPart& part, int64_t num_ranks) {
  if (part.cut == PartCut::kWhole) return num_ranks;
  if (part.cut != PartCut::kCopied) return 1;
  return std::max<int64_t>(num_ranks * part.unit / part.size, 1);
}

// Joins the slices of a weight and returns the first fault. `slices` has the numbers_of() each
// rank's slice. Empty: the slices give `whole` bit for bit, and overlap only where ranks hold
// copies.
inline std::string fault_of_join(const WeightSpec& spec, const Ranks& ranks,
                                 const std::vector<float>& whole,
                                 const std::vector<std::vector<float>>& slices) {
  const SharedDimension shared =
      shared_dimension(spec, ranks)
          .value_or(SharedDimension{0, {{spec.shape[0], 1, PartCut::kWhole}}});
  size_t inner = 1;
  for (int i = shared.dimension + 1; i < spec.shape.rank(); ++i) {
    inner *= static_cast<size_t>(spec.shape[i]);
  }
  std::vector<int64_t> want;  // expected number of copies of each index of the dimension
  for (const CutPart& part : shared.parts) {
    want.insert(want.end(), static_cast<size_t>(part.size), copies_of(part, ranks.count));
  }
  if (std::ssize(want) != spec.shape[shared.dimension]) return "the parts are not the dimension";
  const size_t lines = whole.size() / inner;  // each has `inner` elements
  std::vector<int64_t> times(lines);
  for (int64_t rank = 0; rank < ranks.count; ++rank) {
    const auto ranges = ranges_of_rank(shared.parts, rank, ranks.count);
    if (!ranges.ok()) return ranges.status().message();
    const std::vector<float>& slice = slices[static_cast<size_t>(rank)];
    size_t done = 0;
    for (size_t begin = 0; begin < lines; begin += want.size()) {
      for (const CutRange& range : *ranges) {
        for (int64_t i = range.first; i < range.first + range.count; ++i, done += inner) {
          const size_t line = begin + static_cast<size_t>(i);
          if (done + inner > slice.size()) return fmt::format("rank {} has too little", rank);
          if (std::memcmp(slice.data() + done, whole.data() + line * inner,
                          inner * sizeof(float)) != 0) {
            return fmt::format("rank {} has other numbers at {} of line {}", rank, i, line);
          }
          ++times[line];
        }
      }
    }
    if (done != slice.size()) return fmt::format("rank {} has too much", rank);
  }
  for (size_t line = 0; line < lines; ++line) {
    if (times[line] != want[line % want.size()]) {
      return fmt::format("line {} is in {} ranks", line, times[line]);
    }
  }
  return {};
}

using LoadSpecs = std::function<Result<LoadedWeights>(std::span<const WeightSpec>)>;

// Loads all weights, then the slices of each rank for every number of ranks that divides them, and
// compares them. Returns these numbers above 1; some ranks may have no part of a weight.
inline std::vector<int64_t> check_slices(const std::vector<WeightSpec>& specs,
                                         const LoadSpecs& load, bool exact) {
  const Result<LoadedWeights> loaded = load(specs);
  EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
  if (!loaded.ok()) return {};
  std::vector<int64_t> legal;
  for (int64_t count = 2; count <= kMaxRanks; ++count) {
    const Ranks ranks{.count = count, .exact = exact};
    if (!sliced(specs, 0, ranks).ok()) continue;
    SCOPED_TRACE(fmt::format("{} ranks{}", count, exact ? ", exact" : ""));
    legal.push_back(count);
    std::vector<LoadedWeights> own;
    for (int64_t rank = 0; rank < count; ++rank) {
      const auto slices = sliced(specs, rank, ranks);
      EXPECT_TRUE(slices.ok()) << slices.status().to_string();
      Result<LoadedWeights> part = load(*slices);
      EXPECT_TRUE(part.ok()) << part.status().to_string();
      if (!part.ok()) return legal;
      own.push_back(std::move(part).value());
    }
    for (const WeightSpec& spec : specs) {
      std::vector<std::vector<float>> slices;
      for (const LoadedWeights& weights : own) slices.push_back(numbers_of(weights[spec.name]));
      EXPECT_EQ(fault_of_join(spec, ranks, numbers_of((*loaded)[spec.name]), slices), "")
          << spec.name;
    }
  }
  return legal;
}

}  // namespace heddle::checkpoint::testing
