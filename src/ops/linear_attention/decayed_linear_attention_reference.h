// SPDX-License-Identifier: Apache-2.0
// Reference for tests: decayed linear attention in plain loops and double precision, token by
// token.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/linear_attention/decayed_head.h"

namespace heddle::ops {

// The time step of a token whose input is x = a + dt_bias.
inline double time_step_reference(double x, double low, double high) {
  return std::clamp(x > 20 ? x : std::log1p(std::exp(x)), low, high);
}

// Returns y [n, Dv] of a head and advances `state` [Dv, Dk]; head.state is neither read nor
// written.
inline std::vector<double> decayed_head_reference(const DecayedHead& head,
                                                  const std::vector<double>& dt,
                                                  std::vector<double>& state) {
  const int64_t Dk = head.key_dim, Dv = head.value_dim;
  std::vector<double> y(static_cast<size_t>(head.num_tokens * Dv));
  for (int64_t t = 0; t < head.num_tokens; ++t) {
    const double step = dt[static_cast<size_t>(t)];
    const double alpha = std::exp(step * static_cast<double>(head.decay));
    for (int64_t v = 0; v < Dv; ++v) {
      double* s = state.data() + v * Dk;
      const auto value = static_cast<double>(head.v[t * head.stride + v]);
      double output = static_cast<double>(head.skip) * value;
      for (int64_t i = 0; i < Dk; ++i) {
        s[i] = alpha * s[i] + step * value * static_cast<double>(head.k[t * head.stride + i]);
        output += s[i] * static_cast<double>(head.q[t * head.stride + i]);
      }
      y[static_cast<size_t>(t * Dv + v)] = output;
    }
  }
  return y;
}

}  // namespace heddle::ops
