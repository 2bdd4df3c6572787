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

// Whether the policy's order depends on the contents of the prefix cache.
[[nodiscard]] bool uses_prefix_cache(QueuePolicy policy);

// With more waiting requests than this, lpm and hrrn order like fcfs and no request is matched
// against the cache: a match costs time for every token of a queued prompt.
constexpr int64_t kMaxMatchedWaiting = 128;

// Whether the policy reads the cache matches when `num_waiting` requests wait.
[[nodiscard]] bool reads_matches(QueuePolicy policy, int64_t num_waiting);

struct QueuePolicyChoice {
  QueuePolicy policy = QueuePolicy::kFcfs;  // never kPriority, which means fcfs with priorities
  bool by_priority = false;                 // urgency comes before the policy's own key
  bool replaced_without_cache = false;      // the requested policy needs the prefix cache, which is
                                            // off, so `policy` is fcfs (logged)
};

// Reads `policy`, `enable_priority` and their numbers from the options. Errors, kInvalidArgument:
// priorities with a policy other than fcfs, lof and fair; a number out of range.
[[nodiscard]] Result<QueuePolicyChoice> choose_queue_policy(const SchedulingOptions& options,
                                                            bool prefix_cache_enabled);

// A request without priority gets the smallest 64-bit urgency unless the operator sets a default.
// Sums and differences of urgencies therefore saturate instead of overflowing.
[[nodiscard]] int64_t saturating_add(int64_t a, int64_t b);
[[nodiscard]] int64_t saturating_subtract(int64_t a, int64_t b);

struct PriorityRules {
  bool enabled = false;                     // priorities are on; QueuePolicyChoice::by_priority
  bool low_values_first = false;            // smaller priority values are more urgent
  std::optional<int64_t> default_priority;  // priority of requests that have none; no value: they
                                            // are least urgent
};

// The request's priority or the default priority, negated with saturation if low values are urgent.
// 0 for every request while priorities are off.
[[nodiscard]] int64_t urgency_of(std::optional<int64_t> priority, const PriorityRules& rules);

// Raises the urgency by one class for every `aging_seconds` waited (0: never), up to `top_urgency`,
// the highest base urgency of all requests, waiting or running. There the aged request goes before
// requests of equal urgency that arrived later, but it never passes a class. A request g classes
// below the top waits at most g * aging_seconds before its arrival time decides.
//
// Aging needs a default priority: without one a request is 2^63 classes below 0. Preemption
// compares base urgencies, so a long wait never preempts others.
[[nodiscard]] int64_t aged_urgency(int64_t base_urgency, double queued_seconds,
                                   double aging_seconds, int64_t top_urgency);

}  // namespace heddle::scheduler
