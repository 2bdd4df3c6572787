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
                                          int64_t head_dim, double factor,
                                          int64_t first_channel = 0, bool interleaved = false,
                                          std::span<const int32_t> axes = {}, size_t num_axes = 1) {
  std::vector<double> y = x;
  const size_t half = inverse_frequencies.size();
  const size_t D = static_cast<size_t>(head_dim);
  const size_t num_rows = positions.size() / num_axes;
  const size_t width = x.size() / num_rows;
  for (size_t t = 0; t < num_rows; ++t) {
    for (size_t head = t * width; head < (t + 1) * width; head += D) {
      for (size_t i = 0; i < half; ++i) {
        const auto axis = axes.empty() ? size_t{0} : static_cast<size_t>(axes[i]);
        const float angle =
            inverse_frequencies[i] * static_cast<float>(positions[t * num_axes + axis]);
        const double cosine = factor * std::cos(static_cast<double>(angle));
        const double sine = factor * std::sin(static_cast<double>(angle));
        const size_t first = head + static_cast<size_t>(first_channel);
        const size_t a = first + (interleaved ? 2 * i : i);
        const size_t b = interleaved ? a + 1 : a + half;
        y[a] = x[a] * cosine - x[b] * sine;
        y[b] = x[b] * cosine + x[a] * sine;
      }
    }
  }
  return y;
}

}  // namespace heddle::ops
