// SPDX-License-Identifier: Apache-2.0
// StepLog: a line per step with prefill and one per 40 steps that decode, at level debug, and the
// rate of decoding between the latter.
//
// Threading: confined to the engine thread. Cost: nothing is formatted unless the log shows it.
#pragma once

#include <cstdint>

#include "engine/step_facts.h"
#include "scheduler/scheduler.h"

namespace heddle::engine {

class StepLog {
 public:
  // `kv_capacity` in tokens.
  explicit StepLog(int64_t kv_capacity) : kv_capacity_(kv_capacity) {}

  void on_step(const StepFacts& step, const scheduler::SchedulerStats& stats);

  // Of the last 40 steps that decoded; 0 until there were so many.
  [[nodiscard]] double decode_tokens_per_second() const { return rate_; }

 private:
  int64_t kv_capacity_;
  int64_t num_decode_steps_ = 0;
  int64_t decoded_tokens_ = 0;
  double busy_seconds_ = 0;  // of those steps
  double rate_ = 0;
};

}  // namespace heddle::engine
