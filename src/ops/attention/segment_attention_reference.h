// SPDX-License-Identifier: Apache-2.0
// segment_attention in plain loops and double: the test's oracle and the clearest statement of the
// op.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace heddle::ops {

// q, k and v hold rows of `num_heads` heads; `segments` has the first row and the end of each row's
// segment.
inline std::vector<double> segment_attention_reference(const std::vector<double>& q,
                                                       const std::vector<double>& k,
                                                       const std::vector<double>& v,
                                                       std::span<const int32_t> segments,
                                                       size_t num_heads, size_t D, double scale) {
  std::vector<double> y(q.size());
  const size_t width = num_heads * D;
  for (size_t s = 0; s < segments.size() / 2; ++s) {
    const auto begin = static_cast<size_t>(segments[2 * s]);
    const auto end = static_cast<size_t>(segments[2 * s + 1]);
    for (size_t head = 0; head < width; head += D) {
      std::vector<double> p;
      for (size_t r = begin; r < end; ++r) {
        double score = 0;
        for (size_t c = 0; c < D; ++c) score += q[s * width + head + c] * k[r * width + head + c];
        p.push_back(scale * score);
      }
      const double largest = *std::ranges::max_element(p);
      double sum = 0;
      for (double& score : p) sum += score = std::exp(score - largest);
      for (size_t r = begin; r < end; ++r) {
        for (size_t c = 0; c < D; ++c) {
          y[s * width + head + c] += p[r - begin] / sum * v[r * width + head + c];
        }
      }
    }
  }
  return y;
}

}  // namespace heddle::ops
