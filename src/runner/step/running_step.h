// SPDX-License-Identifier: Apache-2.0
// RunningStep: a step from the time it is begun until it is finished.
//
// Threading: confined.
#pragma once

#include <cstdint>
#include <vector>

#include "request/batch_plan.h"
#include "runner/step/step_needs.h"
#include "runner/step/step_sequence.h"

namespace heddle::runner {

// The work after a step's draws, and who does it.
enum class StepEnd : uint8_t {
  kHostSettles,    // the host waits for all of the step, then moves states and rows of drafts that
                   // held, and has new ones made
  kOpen,           // the host reads the tokens; the next step may begin before that
  kDeviceSettles,  // the host reads the tokens; states and new drafts are enqueued behind the
                   // draws. No step begins before this one is finished.
};

struct RunningStep {
  int64_t number = 0;
  const request::BatchPlan* plan = nullptr;
  StepNeeds needs;
  StepEnd end = StepEnd::kHostSettles;
  bool warms_up = false;
  std::vector<StepSequence> sequences;
  std::vector<int32_t> paths;  // the sequences' paths, end to end

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
