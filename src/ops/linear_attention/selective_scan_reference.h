// SPDX-License-Identifier: Apache-2.0
// Reference for tests: the selective scan of one channel in plain loops and double precision.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace heddle::ops {

// The inputs of a channel at one token.
struct ScanToken {
  float x = 0, dt = 0, z = 0;
  const float* b = nullptr;  // [N]
  const float* c = nullptr;  // [N]
};

// Returns y for the tokens of one channel and advances `state` [N]; `a` is the channel's row of
// neg_exp_a_log.
inline std::vector<double> selective_scan_reference(const std::vector<ScanToken>& tokens,
                                                    const float* a, float dt_bias, float skip,
                                                    std::vector<double>& state) {
  std::vector<double> y;
  for (const ScanToken& token : tokens) {
    const double raw = static_cast<double>(token.dt) + static_cast<double>(dt_bias);
    const double dt = raw > 20 ? raw : std::log1p(std::exp(raw));
    const auto x = static_cast<double>(token.x), z = static_cast<double>(token.z);
    double sum = static_cast<double>(skip) * x;
    for (size_t n = 0; n < state.size(); ++n) {
      state[n] = std::exp(dt * static_cast<double>(a[n])) * state[n] +
                 dt * x * static_cast<double>(token.b[n]);
      sum += static_cast<double>(token.c[n]) * state[n];
    }
    y.push_back(sum * z / (1.0 + std::exp(-z)));
  }
  return y;
}

}  // namespace heddle::ops
