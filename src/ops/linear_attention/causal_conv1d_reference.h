// SPDX-License-Identifier: Apache-2.0
// Reference for tests: the short convolution in plain loops and double precision.
#pragma once

#include <cmath>
#include <vector>

namespace heddle::ops {

// Returns y [n, C] for x [n, C] with the preceding inputs `window` [W - 1, C], weight [C, W] and
// bias [C], which may be empty.
inline std::vector<double> causal_conv1d_reference(const std::vector<float>& x,
                                                   const std::vector<float>& window,
                                                   const std::vector<float>& weight, size_t C,
                                                   size_t W, bool silu = true,
                                                   const std::vector<float>& bias = {}) {
  std::vector<float> u = window;
  u.insert(u.end(), x.begin(), x.end());
  std::vector<double> y(x.size());
  for (size_t t = 0; t < x.size() / C; ++t) {
    for (size_t c = 0; c < C; ++c) {
      double sum = bias.empty() ? 0.0 : static_cast<double>(bias[c]);
      for (size_t m = 0; m < W; ++m) {
        sum += static_cast<double>(weight[c * W + m]) * static_cast<double>(u[(t + m) * C + c]);
      }
      y[t * C + c] = silu ? sum / (1.0 + std::exp(-sum)) : sum;
    }
  }
  return y;
}

}  // namespace heddle::ops
