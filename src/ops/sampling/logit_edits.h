// SPDX-License-Identifier: Apache-2.0
// Changes of a logit by penalties and min_p. Every operation is rounded by itself, so that kernels
// and the CPU compute the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/compiler.h"
#include "ops/sampling/token_weight.h"

namespace heddle::ops {

// How often a token occurred in a text; larger counts are stored as kMostCounted.
using TokenCount = uint16_t;
inline constexpr int32_t kMostCounted = 0xffff;

struct Penalties {
  float repetition = 1;
  float frequency = 0;
  float presence = 0;

  // The logit of a token that occurred in the output `count` times, at least once.
  [[nodiscard]] HEDDLE_HOST_DEVICE float apply(float logit, int32_t count) const {
    const float repeated = logit > 0 ? divided(logit) : rounded_product(logit, repetition);
    const int32_t counted = count < kMostCounted ? count : kMostCounted;
    return repeated - (rounded_product(frequency, static_cast<float>(counted)) + presence);
  }

 private:
  [[nodiscard]] HEDDLE_HOST_DEVICE float divided(float logit) const {
#ifdef __CUDA_ARCH__
    return __fdiv_rn(logit, repetition);
#else
    return logit / repetition;
#endif
  }
};

// The lowest logit that min_p keeps: the smallest float that is not below max + reach, where reach
// = temperature * log(min_p), but at most `max`. -infinity if reach is -infinity.
[[nodiscard]] HEDDLE_HOST_DEVICE inline float lowest_within(float max, double reach) {
  const double exact = static_cast<double>(max) + reach;
  auto lowest = static_cast<float>(exact);
  if (static_cast<double>(lowest) < exact) lowest = nextafterf(lowest, INFINITY);
  return lowest < max ? lowest : max;
}

}  // namespace heddle::ops
