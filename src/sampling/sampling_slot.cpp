// SPDX-License-Identifier: Apache-2.0
#include "sampling/sampling_slot.h"

#include <cmath>
#include <limits>

namespace heddle::sampling {

double min_p_reach(const SamplingParams& params) {
  if (params.min_p <= 0) return -std::numeric_limits<double>::infinity();
  const double log_ratio = std::log(static_cast<double>(params.min_p));
  return static_cast<double>(weight_temperature(params)) * log_ratio;
}

ops::SamplingSlot sampling_slot(const SamplingParams& params, uint64_t seed, int32_t choice_index,
                                int64_t vocab_size) {
  // With top_p <= 0 only the most probable token remains.
  const bool takes_best = params.top_p <= 0;
  const int32_t top_k = takes_best ? 1 : params.top_k;
  const bool has_top_k = top_k >= 1 && top_k < vocab_size;
  return {.seed = seed,
          .min_p_reach = min_p_reach(params),
          .inverse_temperature = 1.0f / weight_temperature(params),
          .top_p = takes_best ? 1.0f : params.top_p,
          .top_k = has_top_k ? top_k : 0,
          .greedy = is_greedy(params) ? 1 : 0,
          .choice_index = choice_index,
          .repetition_penalty = params.repetition_penalty,
          .frequency_penalty = params.frequency_penalty,
          .presence_penalty = params.presence_penalty};
}

}  // namespace heddle::sampling
