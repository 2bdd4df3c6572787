// SPDX-License-Identifier: Apache-2.0
// StepFacts: what a step computes, counted when it is launched, for metrics and log.
// StepLog: at level debug, a line per step with prefill and one per 40 steps that decode; and the
// decode rate over these 40.
//
// Threading: confined to the engine thread. Cost: nothing is formatted unless the log shows it.
#pragma once

#include <cstdint>

#include "scheduler/scheduler.h"

namespace heddle::engine {

struct StepFacts {
  int64_t new_sequences = 0;   // sequences that start with this step
  int64_t cached_tokens = 0;   // prompt tokens these found in the cache
  int64_t prefill_tokens = 0;  // computed, not drawn
  // Sequences that decode; each yields one token and its accepted drafts.
  int64_t decode_sequences = 0;
  int64_t draft_tokens = 0;     // computed to be verified
  int64_t accepted_drafts = 0;  // how many of the drafts were accepted, once the step has ended
  int64_t decode_context = 0;   // tokens before those
  double plan_seconds = 0;      // how long the host took to plan it
  double launched_seconds = 0;  // time of launch
  double seconds = 0;  // since the launch, or since the end of the step before if that was later
  double end_seconds = 0;

  [[nodiscard]] bool prefills() const { return prefill_tokens > 0 || new_sequences > 0; }
};

class StepLog {
 public:
  // `kv_capacity` in tokens.
  explicit StepLog(int64_t kv_capacity) : kv_capacity_(kv_capacity) {}

  // A step ended: what decoded() counts; then, with the state after it, the rest.
  void count(const StepFacts& step) { decoded_.add(step); }

  void on_step(const StepFacts& step, const scheduler::SchedulerStats& stats);

  // Since the start: steps of each sequence that decoded, drafts that they verified, and those that
  // held.
  struct Decoded {
    int64_t steps = 0;
    int64_t draft_tokens = 0;
    int64_t accepted_drafts = 0;

    void add(const StepFacts& step);

    [[nodiscard]] int64_t tokens() const { return steps + accepted_drafts; }
  };

  [[nodiscard]] const Decoded& decoded() const { return decoded_; }

  // Over the last 40 steps that decoded; 0 until there were that many.
  [[nodiscard]] double decode_tokens_per_second() const { return rate_; }

 private:
  int64_t kv_capacity_;
  Decoded decoded_;
  int64_t num_decode_steps_ = 0;
  Decoded interval_;         // sums over the current interval of num_decode_steps_ steps
  double busy_seconds_ = 0;  // total duration of the steps
  double rate_ = 0;
};

}  // namespace heddle::engine
