// SPDX-License-Identifier: Apache-2.0
// WeightChange: a stored tensor's numbers after adapters have changed it.
//
// Threading: immutable once it is made; compute() may be called from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "checkpoint/low_rank_term.h"
#include "checkpoint/weight_source.h"
#include "core/tensor.h"

namespace heddle::checkpoint {

struct WeightChange {
  // The most elements that are computed at once.
  static constexpr int64_t kMostElements = 4096;

  size_t adapter = 0;         // index of the last one that changes it
  bool is_exclusive = false;  // no sum: no other adapter may change it
  std::optional<TensorView> replacement;
  int64_t row_width = 1;
  std::map<int64_t, std::vector<float>> rows;  // that are replaced
  std::vector<LowRankTerm> terms;
  std::vector<double> row_factors;  // of each row, last; empty: 1

  // Elements [first, first + count) of the changed tensor, which `base` has as `stored`.
  void compute(const WeightSource& base, const StoredWeight& stored, int64_t first, int64_t count,
               double* values) const;
};

}  // namespace heddle::checkpoint
