// SPDX-License-Identifier: Apache-2.0
// Preemption: which running requests go back to the queue, for a more urgent waiting request that
// cannot be admitted (choose_victims()) or because pages run out (choose_retraction()).
//
// For a more urgent request, candidates are taken least urgent first, the newest first among
// equals, while the waiting request is more urgent by more than the threshold, until what they give
// back covers what is missing: all or nothing. Urgencies are base urgencies; aging never preempts.
// A victim gives back the tokens it owns alone, what was set aside for its future, its batch slot
// and its state slot. The reference counts the future only and protects no victim;
// PreemptionRules::reference() is that rule.
//
// When pages run out, the keys are, ascending: retracted kMaxRetractions times or more (last),
// urgency, retractions so far, output tokens, -prompt tokens, -arrival. Little work is lost with
// little output, and much memory comes free with a long prompt. The reference compares output and
// prompt only.
//
// Threading: Preemption is thread-confined, the free functions are thread-compatible.
// Cost: O(n log n); allocates nothing once its vectors have grown.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <heddle/options.h>

#include "scheduler/running_set.h"

namespace heddle::scheduler {

struct PreemptionRules {
  int64_t threshold = 10;        // strictly greater is required
  bool credit_held = true;       // count the tokens that the victim owns
  int32_t max_preemptions = 3;   // per request; then it is not preempted again
  double min_run_seconds = 0.2;  // since admission
  int32_t max_victims = 4;       // per pass

  // The options' numbers, our rules.
  [[nodiscard]] static PreemptionRules from(const SchedulingOptions& options);

  // Only the future is credited, no request is protected, any number of victims.
  [[nodiscard]] static PreemptionRules reference(int64_t threshold);
};

// The amounts that the waiting request lacks; <= 0: it lacks none.
struct PreemptionNeed {
  int64_t urgency = 0;      // base
  double tokens = 0;        // pending + min(max_new_tokens, kNewTokensClip) - what remains in total
                            // (PrefillBudget::remaining_total())
  int64_t batch_slots = 0;  // 1 when every one is taken
  int64_t state_slots = 0;  // 1 when every one is taken
};

struct PreemptionCandidate {
  int64_t urgency = 0;  // base
  int64_t arrival = 0;  // unique
  int64_t max_new_tokens = 0;
  int64_t output_tokens = 0;
  int64_t held_tokens = 0;  // pages that come free, in tokens: without those shared with others
  int64_t state_slots = 1;  // slots that it owns
  int32_t num_preemptions = 0;
  double run_seconds = 0;  // since the last admission
};

// Fills `victims` with indices of `running`, first to leave first; empty and false when preemption
// does not help. `ratio` is the new-token ratio. `running` has no finished request.
[[nodiscard]] bool choose_victims(const PreemptionNeed& need,
                                  std::span<const PreemptionCandidate> running, double ratio,
                                  const PreemptionRules& rules, std::vector<int32_t>& victims);

// A request that was retracted this often is retracted only when no other is left.
constexpr int32_t kMaxRetractions = 3;

enum class RetractionRule {
  kOurs,
  kReference,  // output tokens, -prompt tokens, -arrival
};

struct RetractionCandidate {
  int64_t urgency = 0;
  int32_t num_retractions = 0;
  int64_t output_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t arrival = 0;  // unique
};

// Index of the one to retract; none when fewer than two are running: the last one is never
// retracted, it fits alone or it can never run.
[[nodiscard]] std::optional<int32_t> choose_retraction(std::span<const RetractionCandidate> running,
                                                       RetractionRule rule = RetractionRule::kOurs);

// The same, asked about a RunningSet.
class Preemption {
 public:
  Preemption(const PreemptionRules& rules, int32_t page_size, bool needs_state)
      : rules_(rules), page_size_(page_size), needs_state_(needs_state) {}

  // The victims for the need, first to leave first; empty when preemption does not help, or while a
  // running sequence is about to leave anyway. Valid until the next call.
  [[nodiscard]] std::span<RunningSequence* const> victims_for(const PreemptionNeed& need,
                                                              const RunningSet& running,
                                                              double ratio, double now_seconds);

  // The one to retract; null when fewer than two are running.
  [[nodiscard]] RunningSequence* choose_retraction(const RunningSet& running);

 private:
  PreemptionRules rules_;
  int32_t page_size_;
  bool needs_state_;

  // Scratch.
  std::vector<PreemptionCandidate> candidates_;
  std::vector<RetractionCandidate> retraction_candidates_;
  std::vector<int32_t> chosen_;
  std::vector<RunningSequence*> victims_;
};

}  // namespace heddle::scheduler
