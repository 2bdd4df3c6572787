// SPDX-License-Identifier: Apache-2.0
// WeightChange: computes the numbers of a stored tensor after adapters have changed it.
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
  // The most elements that compute() may be asked for in one call.
  static constexpr int64_t kMostElements = 4096;

  size_t adapter = 0;         // index of the last adapter that changes the tensor
  bool is_exclusive = false;  // not a sum of terms: no other adapter may change the tensor
  std::optional<TensorView> replacement;
  int64_t row_width = 1;
  // Rows that replace the base's, by their index.
  std::map<int64_t, std::vector<float>> rows;
  std::vector<LowRankTerm> terms;
  // A factor for each row, applied last; empty: 1.
  std::vector<double> row_factors;

  // Computes elements [first, first + count) of the changed tensor. `stored` is the tensor in
  // `base`.
  void compute(const WeightSource& base, const StoredWeight& stored, int64_t first, int64_t count,
               double* values) const;
};

}  // namespace heddle::checkpoint
