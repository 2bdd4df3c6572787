// SPDX-License-Identifier: Apache-2.0
// rope in plain loops and double, from fp32 angles: the test oracle and the clearest statement of
// the op.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle::ops {

inline std::vector<double> rope_reference(const std::vector<double>& x,
                                          std::span<const int32_t> positions,
                                          std::span<const float> inverse_frequencies,
                                          int64_t head_dim, double factor) {
  std::vector<double> y = x;
  const size_t half = inverse_frequencies.size();
  const size_t D = static_cast<size_t>(head_dim);
  const size_t width = x.size() / positions.size();
  for (size_t t = 0; t < positions.size(); ++t) {
    for (size_t head = t * width; head < (t + 1) * width; head += D) {
      for (size_t i = 0; i < half; ++i) {
        const float angle = inverse_frequencies[i] * static_cast<float>(positions[t]);
        const double cosine = factor * std::cos(static_cast<double>(angle));
        const double sine = factor * std::sin(static_cast<double>(angle));
        y[head + i] = x[head + i] * cosine - x[head + half + i] * sine;
        y[head + half + i] = x[head + half + i] * cosine + x[head + i] * sine;
      }
    }
  }
  return y;
}

}  // namespace heddle::ops
