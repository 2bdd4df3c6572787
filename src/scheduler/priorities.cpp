// SPDX-License-Identifier: Apache-2.0
#include "scheduler/priorities.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace heddle::scheduler {

namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

}  // namespace

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
  // 2^62 classes are more than any wait: beyond it a double would not convert.
  const auto gained = static_cast<int64_t>(std::min(classes, 0x1p62));
  return std::min(top_urgency, saturating_add(base_urgency, gained));
}

}  // namespace heddle::scheduler
