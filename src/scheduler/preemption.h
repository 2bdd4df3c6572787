// SPDX-License-Identifier: Apache-2.0
// Preemption: decides which running requests go back to the queue, for a more urgent waiting
// request that cannot be admitted (choose_victims()) or because pages run out
// (choose_retraction()).
//
// choose_victims() goes through the running requests from the least urgent on, the newest first
// among equals, while the waiting request is more urgent by more than the threshold. It stops when
// what they would free covers the need; otherwise it preempts none. It compares base urgencies:
// aging never preempts. A victim frees the tokens it owns alone, the tokens reserved for its future
// output, its batch slot and its state slot. The reference rule, PreemptionRules::reference(),
// counts only the reserved tokens and protects no victim.
//
// choose_retraction() retracts the request with the smallest key: retracted kMaxRetractions times
// or more (last), urgency, retractions so far, output tokens, -prompt tokens, -arrival. Little
// output means little lost work, a long prompt much freed memory. RetractionRule::kReference
// compares output, prompt and arrival only.
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
  int64_t threshold = 10;        // difference in urgency that a preemption must exceed
  bool credit_held = true;       // count the tokens that the victim owns, not only those reserved
                                 // for its output
  int32_t max_preemptions = 3;   // a request that was preempted this often is not preempted again
  double min_run_seconds = 0.2;  // a request is protected for this long after its admission, in
                                 // seconds
  int32_t max_victims = 4;       // most running requests preempted in one pass

  // Our rules, with the numbers of the options.
  [[nodiscard]] static PreemptionRules from(const SchedulingOptions& options);

  // The rules compared against in tests: only reserved output counts, no request is protected, and
  // the number of victims is not limited.
  [[nodiscard]] static PreemptionRules reference(int64_t threshold);
};

// The amounts that the waiting request lacks; a value <= 0 means that it lacks none.
struct PreemptionNeed {
  int64_t urgency = 0;      // base urgency of the waiting request
  double tokens = 0;        // pending + min(max_new_tokens, kNewTokensClip) -
                            // PrefillBudget::remaining_total()
  int64_t batch_slots = 0;  // 1 if all batch slots are in use
  int64_t state_slots = 0;  // 1 if all state slots are in use
};

struct PreemptionCandidate {
  int64_t urgency = 0;  // base urgency, without aging
  int64_t arrival = 0;  // the sequence's id, unique
  int64_t max_new_tokens = 0;
  int64_t output_tokens = 0;
  int64_t held_tokens = 0;  // tokens in its pages that would be freed; pages shared with others do
                            // not count
  int64_t state_slots = 1;  // state slots that it would free
  int32_t num_preemptions = 0;
  double run_seconds = 0;  // seconds since the last admission
};

// Fills `victims` with indices of `running`, the first to preempt first. Returns false and leaves
// `victims` empty if preemption does not help. `ratio` is the new-token ratio. `running` has no
// finished request.
[[nodiscard]] bool choose_victims(const PreemptionNeed& need,
                                  std::span<const PreemptionCandidate> running, double ratio,
                                  const PreemptionRules& rules, std::vector<int32_t>& victims);

// A request that was retracted this often is retracted again only when no other is left.
constexpr int32_t kMaxRetractions = 3;

enum class RetractionRule {
  kOurs,
  kReference,  // compares output tokens, -prompt tokens, -arrival
};

struct RetractionCandidate {
  int64_t urgency = 0;
  int32_t num_retractions = 0;
  int64_t output_tokens = 0;
  int64_t prompt_tokens = 0;
  int64_t arrival = 0;  // the sequence's id, unique
};

// Index of the request to retract; no value when fewer than two run. The last one is never
// retracted: it fits alone, or it can never run.
[[nodiscard]] std::optional<int32_t> choose_retraction(std::span<const RetractionCandidate> running,
                                                       RetractionRule rule = RetractionRule::kOurs);

// choose_victims() and choose_retraction() applied to a RunningSet.
class Preemption {
 public:
  Preemption(const PreemptionRules& rules, int32_t page_size, bool needs_state)
      : rules_(rules), page_size_(page_size), needs_state_(needs_state) {}

  // The victims for `need`, the first to preempt first. Empty when preemption does not help, or
  // while a running sequence is already leaving. Valid until the next call.
  [[nodiscard]] std::span<RunningSequence* const> victims_for(const PreemptionNeed& need,
                                                              const RunningSet& running,
                                                              double ratio, double now_seconds);

  // The sequence to retract; null when fewer than two run.
  [[nodiscard]] RunningSequence* choose_retraction(const RunningSet& running);

 private:
  PreemptionRules rules_;
  int32_t page_size_;
  bool needs_state_;

  // Scratch memory of the functions above, kept to avoid allocations.
  std::vector<PreemptionCandidate> candidates_;
  std::vector<RetractionCandidate> retraction_candidates_;
  std::vector<int32_t> chosen_;
  std::vector<RunningSequence*> victims_;
};

}  // namespace heddle::scheduler
