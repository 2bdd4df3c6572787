// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/weight_change.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "checkpoint/convert.h"

namespace heddle::checkpoint {

namespace {

// Numbers that fp32 cannot hold become infinite. The conversion alone is undefined for them.
float rounded(double value) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr double kMost = std::numeric_limits<float>::max();
  if (value > kMost) return kInfinity;
  if (value < -kMost) return -kInfinity;
  return static_cast<float>(value);
}

}  // namespace

void WeightChange::read(const WeightSource& base, const StoredWeight& stored, int64_t first,
                        int64_t count, DType dtype, void* target) const {
  double exact[kAtOnce];
  float numbers[kAtOnce];
  std::vector<double> sums;
  int64_t row = -1;
  double factor = 1;
  auto* const out = static_cast<std::byte*>(target);
  for (int64_t done = 0; done < count; done += kAtOnce) {
    const int64_t num = std::min(kAtOnce, count - done);
    sum(base, stored, first + done, num, exact, sums);
    for (int64_t i = 0; i < num && !row_lengths.empty(); ++i) {
      const int64_t row_of_i = (first + done + i) / row_width;
      if (row_of_i != row) {
        row = row_of_i;
        factor = row_factor(base, stored, row, sums);
      }
      exact[i] *= factor;
    }
    std::transform(exact, exact + num, numbers, rounded);
    convert_elements(numbers, DType::kF32, out + bytes_of(dtype, done), dtype, num);
  }
}

double WeightChange::row_factor(const WeightSource& base, const StoredWeight& stored, int64_t row,
                                std::vector<double>& sums) const {
  double values[kAtOnce];
  double squares = 0;
  for (int64_t k = 0; k < row_width; k += kAtOnce) {
    const int64_t count = std::min(kAtOnce, row_width - k);
    sum(base, stored, row * row_width + k, count, values, sums);
    for (int64_t i = 0; i < count; ++i) squares += values[i] * values[i];
  }
  return squares > 0 ? row_lengths[static_cast<size_t>(row)] / std::sqrt(squares) : 0;
}

void WeightChange::sum(const WeightSource& base, const StoredWeight& stored, int64_t first,
                       int64_t count, double* values, std::vector<double>& sums) const {
  float numbers[kAtOnce];
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
  for (const LowRankTerm& term : terms) term.add(first, count, values, sums);
}

}  // namespace heddle::checkpoint
