// SPDX-License-Identifier: Apache-2.0
// LogSoftmax: logprobs of a row, from the maximum and the sum of weights that a sampler computed on
// any device.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "ops/sampling/token_weight.h"

namespace heddle::sampling {

inline constexpr float kMaskedLogprob = -9999.0f;

class LogSoftmax {
 public:
  // `total`: the sum of the row's weights. `temperature` is that of the weights: 1 when greedy.
  LogSoftmax(float max, float temperature, uint64_t total)
      : max_(max),
        temperature_(temperature),
        log_total_(std::log(std::ldexp(static_cast<double>(total), -ops::kWeightBits))) {}

  // Logprob of a token with this logit after the penalties; kMaskedLogprob if it is masked.
  [[nodiscard]] float operator()(float logit) const {
    if (logit == -std::numeric_limits<float>::infinity()) return kMaskedLogprob;
    const double scaled = (static_cast<double>(logit) - max_) / temperature_;
    return std::max(static_cast<float>(scaled - log_total_), kMaskedLogprob);
  }

 private:
  double max_;
  double temperature_;
  double log_total_;
};

}  // namespace heddle::sampling
