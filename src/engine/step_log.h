// SPDX-License-Identifier: Apache-2.0
// StepFacts: the work of a step, counted when it is launched, for metrics and the log.
// StepLog: at level debug, logs a line for each step with prefill and one for every 40 decode
// steps. It also computes the decode rate over these 40 steps.
//
// Threading: confined to the engine thread. Cost: no text is formatted unless the log shows it.
#pragma once

#include <cstdint>

#include "scheduler/scheduler.h"

namespace heddle::engine {

struct StepFacts {
  int64_t new_sequences = 0;   // sequences that start with this step
  int64_t cached_tokens = 0;   // prompt tokens of the new sequences that were in the prefix cache
  int64_t prefill_tokens = 0;  // prompt tokens that the step computes
  // Sequences that decode; each yields one token and its accepted drafts.
  int64_t decode_sequences = 0;
  int64_t draft_tokens = 0;     // drafts that the step verifies
  int64_t accepted_drafts = 0;  // drafts that were accepted; set once the step has ended
  int64_t decode_context = 0;   // context tokens of the sequences that decode, summed
  double plan_seconds = 0;      // how long the host took to plan the step
  double launched_seconds = 0;  // when the step was launched, on the engine's clock
  // Duration, from the launch or from the end of the step before, if that was later.
  double seconds = 0;
  double end_seconds = 0;

  [[nodiscard]] bool prefills() const { return prefill_tokens > 0 || new_sequences > 0; }
};

class StepLog {
 public:
  // `kv_capacity`: tokens that the KV pool holds.
  explicit StepLog(int64_t kv_capacity) : kv_capacity_(kv_capacity) {}

  // Adds an ended step to decoded(). on_step() is then called with the scheduler's state after the
  // step.
  void count(const StepFacts& step) { decoded_.add(step); }

  void on_step(const StepFacts& step, const scheduler::SchedulerStats& stats);

  // Totals since the start: decoding sequences summed over the steps, the drafts that they
  // verified, and those accepted.
  struct Decoded {
    int64_t steps = 0;
    int64_t draft_tokens = 0;
    int64_t accepted_drafts = 0;

    void add(const StepFacts& step);

    [[nodiscard]] int64_t tokens() const { return steps + accepted_drafts; }
  };

  [[nodiscard]] const Decoded& decoded() const { return decoded_; }

  // Decode rate over the last 40 decode steps; 0 before there were 40.
  [[nodiscard]] double decode_tokens_per_second() const { return rate_; }

 private:
  int64_t kv_capacity_;
  Decoded decoded_;
  int64_t num_decode_steps_ = 0;
  // Sums over the current interval, which has had num_decode_steps_ decode steps.
  Decoded interval_;
  double busy_seconds_ = 0;  // total duration of the interval's decode steps
  double rate_ = 0;
};

}  // namespace heddle::engine
