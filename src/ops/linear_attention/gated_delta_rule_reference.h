// SPDX-License-Identifier: Apache-2.0
// The gated delta rule in plain loops and double, token by token: the oracle of the tests.
#pragma once

#include <cmath>
#include <vector>

#include "ops/linear_attention/delta_rule_core.h"

namespace heddle::ops {

// y [n, Dv] of a head; `state` [Dv, Dk] is advanced (the head's own is neither read nor written).
inline std::vector<double> delta_rule_reference(const DeltaRuleHead& head,
                                                std::vector<double>& state) {
  const int64_t Dk = head.key_dim, Dv = head.value_dim;
  std::vector<double> y(static_cast<size_t>(head.num_tokens * Dv));
  const auto normalised = [&](const float* row, double scale) {
    double sum = 1e-6;
    for (int64_t i = 0; i < Dk; ++i)
      sum += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    std::vector<double> unit(static_cast<size_t>(Dk));
    for (int64_t i = 0; i < Dk; ++i) {
      unit[static_cast<size_t>(i)] = static_cast<double>(row[i]) / std::sqrt(sum) * scale;
    }
    return unit;
  };
  for (int64_t t = 0; t < head.num_tokens; ++t) {
    const auto k = normalised(head.k + t * head.k_stride, 1.0);
    const auto q = normalised(head.q + t * head.q_stride, 1.0 / std::sqrt(static_cast<double>(Dk)));
    const double alpha = std::exp(static_cast<double>(head.g[t]));
    for (int64_t v = 0; v < Dv; ++v) {
      double* s = state.data() + v * Dk;
      double error = static_cast<double>(head.v[t * head.v_stride + v]);
      for (int64_t i = 0; i < Dk; ++i) error -= (s[i] *= alpha) * k[static_cast<size_t>(i)];
      double output = 0;
      for (int64_t i = 0; i < Dk; ++i) {
        s[i] += static_cast<double>(head.beta[t]) * error * k[static_cast<size_t>(i)];
        output += s[i] * q[static_cast<size_t>(i)];
      }
      y[static_cast<size_t>(t * Dv + v)] = output;
    }
  }
  return y;
}

}  // namespace heddle::ops
