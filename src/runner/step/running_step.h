// SPDX-License-Identifier: Apache-2.0
// RunningStep: the data of a step from begin() to finish() of StepExecutor.
//
// Threading: confined to one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "request/batch_plan.h"
#include "runner/step/step_needs.h"
#include "runner/step/step_sequence.h"

namespace heddle::runner {

// Where a step's work after its draws is done, and whether the next step may begin before its end.
enum class StepEnd : uint8_t {
  kHostSettles,    // the host waits for the whole step, then moves the states and rows of accepted
                   // drafts and enqueues new drafts
  kOpen,           // no drafts are verified or made: the host only reads the tokens, and the next
                   // step may begin before that
  kDeviceSettles,  // states and new drafts are enqueued right after the draws. The host reads the
                   // tokens; no step begins before this one is finished.
};

struct RunningStep {
  int64_t number = 0;
  const request::BatchPlan* plan = nullptr;
  StepNeeds needs;
  StepEnd end = StepEnd::kHostSettles;
  bool warms_up = false;
  std::vector<StepSequence> sequences;
  std::vector<int32_t> paths;  // the paths of all sequences, one after the other

  void begin(int64_t with_number, const request::BatchPlan& with_plan) {
    number = with_number;
    plan = &with_plan;
    needs = StepNeeds::of(with_plan);
    end = StepEnd::kHostSettles;
    warms_up = false;
    paths.clear();
  }
};

}  // namespace heddle::runner
