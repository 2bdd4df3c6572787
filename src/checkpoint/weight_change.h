// SPDX-License-Identifier: Apache-2.0
// WeightChange: computes the numbers of a stored tensor after adapters have changed it.
//
// Threading: immutable once it is made; read() may be called from any thread.
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
  size_t adapter = 0;         // index of the last adapter that changes the tensor
  bool is_exclusive = false;  // not a sum of terms: no other adapter may change the tensor
  std::optional<TensorView> replacement;
  int64_t row_width = 1;
  // Rows that replace the base's rows, by row index.
  std::map<int64_t, std::vector<float>> rows;
  std::vector<LowRankTerm> terms;
  // DoRA: each row of the sum is scaled to this length, last; empty: no row is scaled.
  std::vector<float> row_lengths;

  // Computes elements [first, first + count) of the changed tensor in double and rounds each once
  // to `dtype`. `stored` is the tensor in `base`. Numbers that fp32 cannot hold become infinite.
  // Cost: with row_lengths each row that has one of the elements is computed twice as a whole.
  void read(const WeightSource& base, const StoredWeight& stored, int64_t first, int64_t count,
            DType dtype, void* target) const;

 private:
  // At most kAtOnce elements, before rows are scaled. `sums` is scratch memory.
  void sum(const WeightSource& base, const StoredWeight& stored, int64_t first, int64_t count,
           double* values, std::vector<double>& sums) const;

  // The factor that scales a row to its length; 0 for a row of zeros.
  [[nodiscard]] double row_factor(const WeightSource& base, const StoredWeight& stored, int64_t row,
                                  std::vector<double>& sums) const;

  static constexpr int64_t kAtOnce = 4096;
};

}  // namespace heddle::checkpoint
