// SPDX-License-Identifier: Apache-2.0
// Preemption: which running requests give way to a more urgent waiting one that cannot be admitted.
//
// Candidates are taken least urgent first, the newest first among equals, while the waiting request
// is more urgent by more than the threshold, until what they give back covers what is missing: all
// or nothing. Urgencies are base urgencies; aging never preempts.
//
// What a victim gives back: the tokens it holds and nobody shares, what was set aside for its
// future, its row and its state slot. The reference counts the future only and protects nobody;
// PreemptionRules::reference() is that rule.
//
// Threading: thread-compatible. Cost: O(n log n); allocates nothing once `victims` has grown.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heddle/options.h>

namespace heddle::scheduler {

struct PreemptionRules {
  int64_t threshold = 10;        // strictly greater is required
  bool credit_held = true;       // held tokens count
  int32_t max_preemptions = 3;   // of one request; then it is left alone
  double min_run_seconds = 0.2;  // since it was admitted
  int32_t max_victims = 4;       // in one pass

  // The options' numbers, our rules.
  [[nodiscard]] static PreemptionRules from(const SchedulingOptions& options);

  // Only the future is credited, nobody is protected, any number of victims.
  [[nodiscard]] static PreemptionRules reference(int64_t threshold);
};

// What the waiting request lacks; what is there already is not missing (<= 0).
struct PreemptionNeed {
  int64_t urgency = 0;      // base
  double tokens = 0;        // pending + min(max_new_tokens, kNewTokensClip) - what remains in total
                            // (PrefillBudget::remaining_total())
  int64_t rows = 0;         // 1 when every row is taken
  int64_t state_slots = 0;  // 1 when every slot is taken
};

struct PreemptionCandidate {
  int64_t urgency = 0;  // base
  int64_t arrival = 0;  // unique
  int64_t max_new_tokens = 0;
  int64_t output_tokens = 0;
  int64_t held_tokens = 0;  // pages that come free, in tokens: without those shared with others
  int64_t state_slots = 1;  // it holds
  int32_t num_preemptions = 0;
  double run_seconds = 0;  // since it was last admitted
};

// Fills `victims` with indices of `running`, first to leave first; empty and false when preemption
// does not help. `ratio` is the new-token ratio. `running` holds no finished request.
[[nodiscard]] bool choose_victims(const PreemptionNeed& need,
                                  std::span<const PreemptionCandidate> running, double ratio,
                                  const PreemptionRules& rules, std::vector<int32_t>& victims);

}  // namespace heddle::scheduler
