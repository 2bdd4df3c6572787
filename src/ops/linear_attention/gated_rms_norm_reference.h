// SPDX-License-Identifier: Apache-2.0
// Reference for tests: the gated norm in plain loops and double precision.
#pragma once

#include <cmath>
#include <vector>

#include "ops/linear_attention/gated_rms_norm.h"

namespace heddle::ops {

struct GatedNormForm {
  double epsilon = 1e-6;
  NormGate gate = NormGate::kSilu;
  bool gate_first = false;
  size_t group_width = 0;  // channels of a group; 0: the width of the weight
};

// Returns y for x and z with any number of groups; the weight is as wide as a group or as a row.
inline std::vector<double> gated_rms_norm_reference(const std::vector<float>& x,
                                                    const std::vector<float>& z,
                                                    const std::vector<float>& weight,
                                                    const GatedNormForm& form) {
  const size_t D = form.group_width == 0 ? weight.size() : form.group_width;
  std::vector<double> y(x.size());
  const auto opening = [&](size_t c) {
    const auto value = static_cast<double>(z[c]);
    return (form.gate == NormGate::kSilu ? value : 1.0) / (1.0 + std::exp(-value));
  };
  for (size_t head = 0; head < x.size(); head += D) {
    const auto input = [&](size_t c) {
      return static_cast<double>(x[c]) * (form.gate_first ? opening(c) : 1.0);
    };
    double sum = 0;
    for (size_t c = head; c < head + D; ++c) sum += input(c) * input(c);
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(D) + form.epsilon);
    for (size_t c = head; c < head + D; ++c) {
      y[c] = static_cast<double>(weight[c % weight.size()]) * input(c) * scale *
             (form.gate_first ? 1.0 : opening(c));
    }
  }
  return y;
}

}  // namespace heddle::ops
