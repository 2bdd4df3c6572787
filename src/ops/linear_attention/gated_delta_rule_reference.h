// SPDX-License-Identifier: Apache-2.0
// Reference for tests: the gated delta rule in plain loops and double precision, token by token.
#pragma once

#include <cmath>
#include <vector>

#include "ops/linear_attention/delta_rule_core.h"

namespace heddle::ops {

// Returns y [n, Dv] of a head and advances `state` [Dv, Dk]; head.state is neither read nor
// written.
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
    const auto log_decay = [&](int64_t i) {
      const ChannelDecay& channel = head.channel;
      if (channel.f == nullptr) return static_cast<double>(head.g[t]);
      const double x = static_cast<double>(channel.f[t * channel.stride + i]) +
                       static_cast<double>(channel.dt_bias[i]);
      return static_cast<double>(channel.neg_exp_a_log) * (x > 20 ? x : std::log1p(std::exp(x)));
    };
    std::vector<double> alpha;
    for (int64_t i = 0; i < Dk; ++i) alpha.push_back(std::exp(log_decay(i)));
    for (int64_t v = 0; v < Dv; ++v) {
      double* s = state.data() + v * Dk;
      double error = static_cast<double>(head.v[t * head.v_stride + v]);
      for (int64_t i = 0; i < Dk; ++i)
        error -= (s[i] *= alpha[static_cast<size_t>(i)]) * k[static_cast<size_t>(i)];
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
