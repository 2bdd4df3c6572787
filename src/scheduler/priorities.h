// SPDX-License-Identifier: Apache-2.0
// Urgency: priorities as numbers of which the larger is always the more urgent.
//
// A request without priority gets the least urgent value there is unless the operator names one, so
// sums and differences meet the ends of 64 bits: all of them saturate.
#pragma once

#include <cstdint>
#include <optional>

namespace heddle::scheduler {

[[nodiscard]] int64_t saturating_add(int64_t a, int64_t b);
[[nodiscard]] int64_t saturating_subtract(int64_t a, int64_t b);

struct PriorityRules {
  bool enabled = false;                     // QueuePolicyChoice::by_priority
  bool low_values_first = false;            // small values are the urgent ones
  std::optional<int64_t> default_priority;  // of requests without one; none: the least urgent
};

// 0 for everybody while priorities are off. Otherwise the request's priority or the default one,
// negated with saturation when low values are the urgent ones.
[[nodiscard]] int64_t urgency_of(std::optional<int64_t> priority, const PriorityRules& rules);

// One class for every `aging_seconds` waited (0: never), but not above `top_urgency`, the highest
// base urgency of all requests, waiting or running: the aged request becomes the equal of the most
// urgent ones and goes before them by its age, it never passes a class. One that is g below the top
// therefore waits g * aging_seconds at most before arrival decides.
//
// A request that is least urgent by default is 2^63 classes below 0: aging needs a default
// priority. Preemption compares base urgencies: waiting long never throws others out.
[[nodiscard]] int64_t aged_urgency(int64_t base_urgency, double queued_seconds,
                                   double aging_seconds, int64_t top_urgency);

}  // namespace heddle::scheduler
