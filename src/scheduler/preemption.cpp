// SPDX-License-Identifier: Apache-2.0
#include "scheduler/preemption.h"

#include <algorithm>
#include <limits>
#include <tuple>

#include "scheduler/prefill_budget.h"
#include "scheduler/queue_policy.h"

namespace heddle::scheduler {

namespace {

auto reference_key(const RetractionCandidate& candidate) {
  return std::tuple(candidate.output_tokens, -candidate.prompt_tokens, -candidate.arrival);
}

auto our_key(const RetractionCandidate& candidate) {
  return std::tuple(candidate.num_retractions >= kMaxRetractions, candidate.urgency,
                    candidate.num_retractions, reference_key(candidate));
}

}  // namespace

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
  // Collects all candidates in order of preemption; the victims are then the front of the list.
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
    left.batch_slots -= 1;
    left.state_slots -= victim.state_slots;
    if (left.tokens <= 0 && left.batch_slots <= 0 && left.state_slots <= 0) {
      victims.resize(i + 1);
      return true;
    }
  }
  victims.clear();
  return false;
}

std::optional<int32_t> choose_retraction(std::span<const RetractionCandidate> running,
                                         RetractionRule rule) {
  if (running.size() < 2) return std::nullopt;
  const auto found =
      std::min_element(running.begin(), running.end(), [rule](const auto& a, const auto& b) {
        return rule == RetractionRule::kOurs ? our_key(a) < our_key(b)
                                             : reference_key(a) < reference_key(b);
      });
  return static_cast<int32_t>(found - running.begin());
}

std::span<RunningSequence* const> Preemption::victims_for(const PreemptionNeed& need,
                                                          const RunningSet& running, double ratio,
                                                          double now_seconds) {
  candidates_.clear();
  victims_.clear();
  if (running.any_leaving()) return {};  // a leaving sequence will free memory anyway
  for (const RunningSequence* candidate : running.sequences()) {
    const request::Sequence& sequence = *candidate->sequence;
    const int64_t shared_pages = candidate->cached.shared_tokens / page_size_;
    candidates_.push_back({.urgency = candidate->urgency,
                           .arrival = sequence.id,
                           .max_new_tokens = sequence.request.stop.max_new_tokens,
                           .output_tokens = sequence.num_output_tokens(),
                           .held_tokens = (std::ssize(sequence.pages) - shared_pages) * page_size_,
                           .state_slots = needs_state_ ? 1 : 0,
                           .num_preemptions = sequence.num_preemptions,
                           .run_seconds = now_seconds - candidate->admitted_seconds});
  }
  if (!choose_victims(need, candidates_, ratio, rules_, chosen_)) return {};
  for (const int32_t index : chosen_) {
    victims_.push_back(running.sequences()[static_cast<size_t>(index)]);
  }
  return victims_;
}

RunningSequence* Preemption::choose_retraction(const RunningSet& running) {
  retraction_candidates_.clear();
  for (const RunningSequence* candidate : running.sequences()) {
    const request::Sequence& sequence = *candidate->sequence;
    retraction_candidates_.push_back({.urgency = candidate->urgency,
                                      .num_retractions = sequence.num_retractions,
                                      .output_tokens = sequence.num_output_tokens(),
                                      .prompt_tokens = sequence.num_prompt_tokens,
                                      .arrival = sequence.id});
  }
  const std::optional<int32_t> index = scheduler::choose_retraction(retraction_candidates_);
  return index ? running.sequences()[static_cast<size_t>(*index)] : nullptr;
}

}  // namespace heddle::scheduler
