// SPDX-License-Identifier: Apache-2.0
// The gated norm in plain loops and double: the oracle of the tests.
#pragma once

#include <cmath>
#include <vector>

#include "ops/linear_attention/gated_rms_norm.h"

namespace heddle::ops {

// y of x and z, any number of heads of weight.size() channels each.
inline std::vector<double> gated_rms_norm_reference(const std::vector<float>& x,
                                                    const std::vector<float>& z,
                                                    const std::vector<float>& weight,
                                                    double epsilon,
                                                    NormGate gate = NormGate::kSilu) {
  const size_t D = weight.size();
  std::vector<double> y(x.size());
  for (size_t head = 0; head < x.size(); head += D) {
    double sum = 0;
    for (size_t c = head; c < head + D; ++c)
      sum += static_cast<double>(x[c]) * static_cast<double>(x[c]);
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(D) + epsilon);
    for (size_t c = head; c < head + D; ++c) {
      const auto value = static_cast<double>(z[c]);
      y[c] = static_cast<double>(weight[c - head]) * static_cast<double>(x[c]) * scale *
             (gate == NormGate::kSilu ? value : 1.0) / (1.0 + std::exp(-value));
    }
  }
  return y;
}

}  // namespace heddle::ops
