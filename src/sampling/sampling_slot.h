// SPDX-License-Identifier: Apache-2.0
// Values that samplers, on the CPU and on a device, derive from the parameters of a request.
#pragma once

#include <cstdint>

#include <heddle/request.h>

#include "ops/sampling/sample_rows.h"

namespace heddle::sampling {

// Below this temperature the best token is taken.
inline constexpr float kGreedyTemperature = 1e-6f;

[[nodiscard]] inline bool is_greedy(const SamplingParams& params) {
  return params.temperature < kGreedyTemperature;
}

// Temperature of the weights: 1 when greedy, for logprobs.
[[nodiscard]] inline float weight_temperature(const SamplingParams& params) {
  return is_greedy(params) ? 1.0f : params.temperature;
}

// How far below the best logit min_p keeps tokens, as a negative number; -infinity without min_p.
[[nodiscard]] double min_p_reach(const SamplingParams& params);

// The slot of a sequence with these parameters, without its lists, its row of counts, its logprobs
// and min_length, which the caller knows.
[[nodiscard]] ops::SamplingSlot sampling_slot(const SamplingParams& params, uint64_t seed,
                                              int32_t choice_index, int64_t vocab_size);

}  // namespace heddle::sampling
