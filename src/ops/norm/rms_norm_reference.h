// SPDX-License-Identifier: Apache-2.0
// rms_norm in plain loops and double: the test oracle and the clearest statement of the op.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace heddle::ops {

// x holds rows of `weight.size()` values.
inline std::vector<double> rms_norm_reference(const std::vector<double>& x,
                                              const std::vector<double>& weight, double epsilon) {
  const size_t H = weight.size();
  std::vector<double> y(x.size());
  for (size_t start = 0; start < x.size(); start += H) {
    double sum = 0;
    for (size_t h = 0; h < H; ++h) sum += x[start + h] * x[start + h];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(H) + epsilon);
    for (size_t h = 0; h < H; ++h) y[start + h] = x[start + h] * scale * weight[h];
  }
  return y;
}

}  // namespace heddle::ops
