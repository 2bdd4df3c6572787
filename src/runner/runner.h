// SPDX-License-Identifier: Apache-2.0
// Runner: carries out a BatchPlan. The engine sees only this interface, so that tests drive the
// whole engine with a fake one.
//
// Threading: confined to the engine thread.
#pragma once

#include "request/batch_plan.h"
#include "request/step_output.h"

namespace heddle::runner {

// What the scheduler may hand out. Ids run from 1 to the given number; 0 is a sink nobody owns.
struct PoolSizes {
  int64_t num_pages = 0;
  int32_t page_size = 16;       // tokens
  int64_t num_state_slots = 0;  // 0 for models without recurrent state
  int64_t max_step_tokens = 0;  // new tokens of one step
  int32_t max_step_sequences = 0;
};

class Runner {
 public:
  virtual ~Runner() = default;

  [[nodiscard]] virtual const PoolSizes& pool_sizes() const = 0;

  // Runs one step and waits for its tokens. A Status is a failure of the whole step (the device is
  // lost); what is wrong with one sequence is in its SampledToken.
  virtual Result<request::StepOutput> run(const request::BatchPlan& plan) = 0;

  // Takes back an output of run() that has been processed, so that the next step can use its
  // memory.
  virtual void recycle(request::StepOutput) {}
};

}  // namespace heddle::runner
