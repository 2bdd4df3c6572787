// SPDX-License-Identifier: Apache-2.0
// Properties of the queue policies, which options go together, and urgency: priorities as numbers
// of which the larger is always the more urgent.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include <heddle/options.h>
#include <heddle/status.h>

namespace heddle::scheduler {

// Whether the order depends on what the prefix cache holds.
[[nodiscard]] bool uses_prefix_cache(QueuePolicy policy);

// Beyond this many waiting requests lpm and hrrn order like fcfs, and no request is matched for the
// order: matching costs time for every queued token.
constexpr int64_t kMaxMatchedWaiting = 128;

// Whether order() reads the matches of `num_waiting` requests.
[[nodiscard]] bool reads_matches(QueuePolicy policy, int64_t num_waiting);

struct QueuePolicyChoice {
  QueuePolicy policy = QueuePolicy::kFcfs;  // never kPriority
  bool by_priority = false;                 // urgency comes before the policy's own key
  bool replaced_without_cache = false;      // the requested policy needs the prefix cache, which is
                                            // off: `policy` is fcfs (logged)
};

// Reads `policy`, `enable_priority` and their numbers. Errors, kInvalidArgument: priorities with a
// policy other than fcfs, lof and fair; a number out of range.
[[nodiscard]] Result<QueuePolicyChoice> choose_queue_policy(const SchedulingOptions& options,
                                                            bool prefix_cache_enabled);

// A request without priority gets the least urgent value there is unless the operator names one, so
// sums and differences meet the ends of 64 bits: all of them saturate.
[[nodiscard]] int64_t saturating_add(int64_t a, int64_t b);
[[nodiscard]] int64_t saturating_subtract(int64_t a, int64_t b);

struct PriorityRules {
  bool enabled = false;                     // QueuePolicyChoice::by_priority
  bool low_values_first = false;            // small values are the urgent ones
  std::optional<int64_t> default_priority;  // for requests without one; none: the least urgent
};

// 0 for every request while priorities are off. Otherwise the request's priority or the default
// one, negated with saturation when low values are the urgent ones.
[[nodiscard]] int64_t urgency_of(std::optional<int64_t> priority, const PriorityRules& rules);

// One class for every `aging_seconds` waited (0: never), but not above `top_urgency`, the highest
// base urgency of all requests, waiting or running: the aged request becomes the equal of the most
// urgent ones and goes before them by its age, it never passes a class. One that is g below the top
// therefore waits g * aging_seconds at most before arrival decides.
//
// A request that is least urgent by default is 2^63 classes below 0: aging needs a default
// priority. Preemption compares base urgencies: a long wait never preempts others.
[[nodiscard]] int64_t aged_urgency(int64_t base_urgency, double queued_seconds,
                                   double aging_seconds, int64_t top_urgency);

}  // namespace heddle::scheduler
