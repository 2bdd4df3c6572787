// SPDX-License-Identifier: Apache-2.0
#include "scheduler/queue_policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace heddle {

namespace {

constexpr std::array<std::pair<std::string_view, QueuePolicy>, 10> kPolicyNames = {{
    {"fcfs", QueuePolicy::kFcfs},
    {"lpm", QueuePolicy::kLpm},
    {"dfs-weight", QueuePolicy::kDfsWeight},
    {"lof", QueuePolicy::kLof},
    {"random", QueuePolicy::kRandom},
    {"routing-key", QueuePolicy::kRoutingKey},
    {"hrrn", QueuePolicy::kHrrn},
    {"shortest-prefill-first", QueuePolicy::kShortestPrefillFirst},
    {"fair", QueuePolicy::kFair},
    {"priority", QueuePolicy::kPriority},
}};

}  // namespace

std::string_view to_string(QueuePolicy policy) {
  for (const auto& [name, named] : kPolicyNames) {
    if (named == policy) return name;
  }
  return "unknown";
}

Result<QueuePolicy> parse_queue_policy(std::string_view name) {
  std::string known;
  for (const auto& [spelling, policy] : kPolicyNames) {
    if (name == spelling) return policy;
    known += fmt::format("{}{}", known.empty() ? "" : ", ", spelling);
  }
  return invalid_argument(
      fmt::format("policy = \"{}\" does not exist; choose one of {}", name, known));
}

}  // namespace heddle

namespace heddle::scheduler {

namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

Status at_least(std::string_view name, double value, double lowest) {
  if (std::isfinite(value) && value >= lowest) return {};
  return invalid_argument(fmt::format("{} = {} must be a number >= {}", name, value, lowest));
}

Status check_numbers(const SchedulingOptions& options) {
  if (!std::isfinite(options.conservativeness) || options.conservativeness <= 0) {
    return invalid_argument(
        fmt::format("conservativeness = {} must be a number > 0", options.conservativeness));
  }
  const std::pair<std::string_view, double> not_negative[] = {
      {"prefills_per_decode", options.prefills_per_decode},
      {"target_itl_ms", options.target_itl_ms},
      {"preemption_threshold", static_cast<double>(options.preemption_threshold)},
      {"max_preemptions", options.max_preemptions},
      {"preemption_min_run_seconds", options.preemption_min_run_seconds},
      {"aging_seconds", options.aging_seconds},
      {"cache_aware_max_wait_seconds", options.cache_aware_max_wait_seconds},
      {"max_queued_tokens", static_cast<double>(options.max_queued_tokens)},
      {"queue_timeout_seconds", options.queue_timeout_seconds},
      {"running_timeout_seconds", options.running_timeout_seconds},
      {"fair_cost_input", options.fair_cost_input},
      {"fair_cost_output", options.fair_cost_output},
      {"fair_cost_cached", options.fair_cost_cached},
      {"tenant_max_running", options.tenant_max_running},
      {"tenant_max_queued", options.tenant_max_queued},
  };
  for (const auto& [name, value] : not_negative) HEDDLE_RETURN_IF_ERROR(at_least(name, value, 0));
  return at_least("max_prefill_tokens", options.max_prefill_tokens, 1);
}

bool takes_priorities(QueuePolicy policy) {
  return policy == QueuePolicy::kFcfs || policy == QueuePolicy::kLof ||
         policy == QueuePolicy::kFair;
}

}  // namespace

bool uses_prefix_cache(QueuePolicy policy) {
  return policy == QueuePolicy::kLpm || policy == QueuePolicy::kDfsWeight ||
         policy == QueuePolicy::kHrrn || policy == QueuePolicy::kShortestPrefillFirst;
}

bool reads_matches(QueuePolicy policy, int64_t num_waiting) {
  const bool bounded = policy == QueuePolicy::kLpm || policy == QueuePolicy::kHrrn;
  return uses_prefix_cache(policy) && !(bounded && num_waiting > kMaxMatchedWaiting);
}

Result<QueuePolicyChoice> choose_queue_policy(const SchedulingOptions& options,
                                              bool prefix_cache_enabled) {
  HEDDLE_RETURN_IF_ERROR(check_numbers(options));
  const bool is_priority = options.policy == QueuePolicy::kPriority;
  const QueuePolicy policy = is_priority ? QueuePolicy::kFcfs : options.policy;
  const bool by_priority = options.enable_priority || is_priority;
  if (by_priority && !takes_priorities(policy)) {
    return invalid_argument(
        fmt::format("enable_priority works with the policies fcfs, lof and fair, policy = \"{}\"; "
                    "choose one of them or turn priorities off",
                    to_string(options.policy)));
  }
  if (by_priority && options.aging_seconds > 0 && !options.default_priority) {
    return invalid_argument(
        fmt::format("aging_seconds = {} needs a default_priority: a request without a priority is "
                    "endlessly far from the urgent ones; set one or turn aging off",
                    options.aging_seconds));
  }
  if (uses_prefix_cache(policy) && !prefix_cache_enabled) {
    return QueuePolicyChoice{.policy = QueuePolicy::kFcfs, .replaced_without_cache = true};
  }
  return QueuePolicyChoice{.policy = policy, .by_priority = by_priority};
}

int64_t saturating_add(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (!__builtin_add_overflow(a, b, &sum)) return sum;
  return b < 0 ? kLowest : kHighest;
}

int64_t saturating_subtract(int64_t a, int64_t b) {
  int64_t difference = 0;
  if (!__builtin_sub_overflow(a, b, &difference)) return difference;
  return b < 0 ? kHighest : kLowest;
}

int64_t urgency_of(std::optional<int64_t> priority, const PriorityRules& rules) {
  if (!rules.enabled) return 0;
  if (!priority) priority = rules.default_priority;
  if (!priority) return kLowest;
  return rules.low_values_first ? saturating_subtract(0, *priority) : *priority;
}

int64_t aged_urgency(int64_t base_urgency, double queued_seconds, double aging_seconds,
                     int64_t top_urgency) {
  if (aging_seconds <= 0 || base_urgency >= top_urgency) return base_urgency;
  const double classes = std::floor(queued_seconds / aging_seconds);
  if (classes < 1) return base_urgency;
  // 2^62 classes are more than any wait reaches; a larger double would not convert to int64_t.
  const auto gained = static_cast<int64_t>(std::min(classes, 0x1p62));
  return std::min(top_urgency, saturating_add(base_urgency, gained));
}

}  // namespace heddle::scheduler
