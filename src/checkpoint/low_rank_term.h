// SPDX-License-Identifier: Apache-2.0
// LowRankTerm: a product of two low-rank factors that is added to a stored tensor.
//
// Threading: values; add() may be called from any thread.
#pragma once

#include <cstdint>
#include <vector>

namespace heddle::checkpoint {

// The elements of a stored tensor that are changed form a grid. Element (i, j) of the grid grows by
// scale * sum over r of outer[r, i] * inner[r, j].
struct LowRankTerm {
  // One of the two factors: element [r, i] is data[r * rank_step + i * step].
  struct Factor {
    const float* data = nullptr;
    int64_t rank_step = 0;
    int64_t step = 1;
  };

  Factor outer;
  Factor inner;
  int64_t rank = 0;
  double scale = 0;
  int64_t first_element = 0;
  int64_t outer_count = 0;
  int64_t outer_step = 1;  // distance between neighbouring i, in elements of the tensor
  int64_t inner_count = 0;
  int64_t inner_step = 1;

  // Adds the term to `values`, which hold the tensor's elements [first, first + count). `sums` is
  // scratch memory for inner_count numbers. Sums are in double, and an element's result does not
  // depend on `first` and `count`.
  void add(int64_t first, int64_t count, double* values, std::vector<double>& sums) const;
};

}  // namespace heddle::checkpoint
