// SPDX-License-Identifier: Apache-2.0
// Values that samplers on the CPU and on a device derive from the parameters of a request.
#pragma once

#include <cstdint>

#include <heddle/request.h>

#include "ops/sampling/sample_rows.h"

namespace heddle::sampling {

// Below this temperature draws are greedy: the best token is taken.
inline constexpr float kGreedyTemperature = 1e-6f;

[[nodiscard]] inline bool is_greedy(const SamplingParams& params) {
  return params.temperature < kGreedyTemperature;
}

// Temperature of the weights. It is 1 when greedy, for logprobs.
[[nodiscard]] inline float weight_temperature(const SamplingParams& params) {
  return is_greedy(params) ? 1.0f : params.temperature;
}

// min_p as a distance: tokens are kept down to this far below the best logit, as a negative number;
// -infinity without min_p.
[[nodiscard]] double min_p_reach(const SamplingParams& params);

// The SamplingSlot of a sequence with these parameters. The caller fills in its lists, its row of
// counts, its logprobs and min_length.
[[nodiscard]] ops::SamplingSlot sampling_slot(const SamplingParams& params, uint64_t seed,
                                              int32_t choice_index, int64_t vocab_size);

}  // namespace heddle::sampling
