// SPDX-License-Identifier: Apache-2.0
#include "scheduler/preemption.h"

#include <algorithm>
#include <limits>

#include "scheduler/new_token_ratio.h"
#include "scheduler/priorities.h"

namespace heddle::scheduler {

PreemptionRules PreemptionRules::from(const SchedulingOptions& options) {
  PreemptionRules rules;
  rules.threshold = options.preemption_threshold;
  rules.max_preemptions = options.max_preemptions;
  rules.min_run_seconds = options.preemption_min_run_seconds;
  return rules;
}

PreemptionRules PreemptionRules::reference(int64_t threshold) {
  return {.threshold = threshold,
          .credit_held = false,
          .max_preemptions = std::numeric_limits<int32_t>::max(),
          .min_run_seconds = 0,
          .max_victims = std::numeric_limits<int32_t>::max()};
}

bool choose_victims(const PreemptionNeed& need, std::span<const PreemptionCandidate> running,
                    double ratio, const PreemptionRules& rules, std::vector<int32_t>& victims) {
  // All candidates first; those that have to leave are then the front of the list.
  victims.clear();
  for (size_t i = 0; i < running.size(); ++i) {
    const PreemptionCandidate& candidate = running[i];
    if (saturating_subtract(need.urgency, candidate.urgency) <= rules.threshold) continue;
    if (candidate.num_preemptions >= rules.max_preemptions) continue;
    if (candidate.run_seconds < rules.min_run_seconds) continue;
    victims.push_back(static_cast<int32_t>(i));
  }
  std::sort(victims.begin(), victims.end(), [&](int32_t a, int32_t b) {
    const PreemptionCandidate& left = running[static_cast<size_t>(a)];
    const PreemptionCandidate& right = running[static_cast<size_t>(b)];
    return left.urgency != right.urgency ? left.urgency < right.urgency
                                         : left.arrival > right.arrival;
  });

  PreemptionNeed left = need;
  for (size_t i = 0; i < victims.size(); ++i) {
    if (static_cast<int64_t>(i) >= int64_t{rules.max_victims}) break;
    const PreemptionCandidate& victim = running[static_cast<size_t>(victims[i])];
    const int64_t future = new_tokens_left(victim.max_new_tokens, victim.output_tokens);
    left.tokens -= static_cast<double>(future) * ratio;
    if (rules.credit_held) left.tokens -= static_cast<double>(victim.held_tokens);
    left.rows -= 1;
    left.state_slots -= victim.state_slots;
    if (left.tokens <= 0 && left.rows <= 0 && left.state_slots <= 0) {
      victims.resize(i + 1);
      return true;
    }
  }
  victims.clear();
  return false;
}

}  // namespace heddle::scheduler
