// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/low_rank_term.h"

#include <algorithm>

namespace heddle::checkpoint {

namespace {

// Rounds towards minus infinity; `divisor` is positive.
int64_t floor_div(int64_t value, int64_t divisor) {
  return value / divisor - (value % divisor < 0 ? 1 : 0);
}

}  // namespace

void LowRankTerm::add(int64_t first, int64_t count, double* values,
                      std::vector<double>& sums) const {
  const int64_t last = first + count - 1;
  const int64_t extent = (inner_count - 1) * inner_step;
  const int64_t last_of_term = first_element + (outer_count - 1) * outer_step + extent;
  if (last < first_element || first > last_of_term) return;
  const int64_t first_outer =
      std::max<int64_t>(0, -floor_div(first_element + extent - first, outer_step));
  const int64_t last_outer = std::min(outer_count - 1, floor_div(last - first_element, outer_step));
  for (int64_t i = first_outer; i <= last_outer; ++i) {
    const int64_t base = first_element + i * outer_step;
    const int64_t begin = std::max<int64_t>(0, -floor_div(base - first, inner_step));
    const int64_t end = std::min(inner_count, floor_div(last - base, inner_step) + 1);
    if (begin >= end) continue;
    sums.assign(static_cast<size_t>(end - begin), 0);
    for (int64_t r = 0; r < rank; ++r) {
      const double factor = outer.data[r * outer.rank_step + i * outer.step];
      const float* const row = inner.data + r * inner.rank_step + begin * inner.step;
      for (int64_t j = 0; j < end - begin; ++j) {
        sums[static_cast<size_t>(j)] += factor * row[j * inner.step];
      }
    }
    for (int64_t j = begin; j < end; ++j) {
      values[base + j * inner_step - first] += scale * sums[static_cast<size_t>(j - begin)];
    }
  }
}

}  // namespace heddle::checkpoint
