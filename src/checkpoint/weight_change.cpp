// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_change.h"

#include <algorithm>
#include <cstddef>

#include "checkpoint/convert.h"

namespace heddle::checkpoint {

void WeightChange::compute(const WeightSource& base, const StoredWeight& stored, int64_t first,
                           int64_t count, double* values) const {
  float numbers[kMostElements];
  if (replacement) {
    const TensorView& view = *replacement;
    convert_elements(static_cast<const std::byte*>(view.data) + bytes_of(view.dtype, first),
                     view.dtype, numbers, DType::kF32, count);
  } else {
    base.read(stored, first, count, DType::kF32, numbers);
  }
  const int64_t K = row_width;
  for (auto row = rows.lower_bound(first / K); row != rows.end() && row->first * K < first + count;
       ++row) {
    const int64_t begin = std::max(first, row->first * K);
    const int64_t end = std::min(first + count, (row->first + 1) * K);
    std::copy_n(row->second.begin() + (begin - row->first * K), end - begin,
                numbers + (begin - first));
  }
  std::copy_n(numbers, count, values);
  std::vector<double> sums;
  for (const LowRankTerm& term : terms) term.add(first, count, values, sums);
  if (row_factors.empty()) return;
  for (int64_t i = 0; i < count; ++i) {
    values[i] *= row_factors[static_cast<size_t>((first + i) / K)];
  }
}

}  // namespace heddle::checkpoint
