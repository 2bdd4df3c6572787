// SPDX-License-Identifier: Apache-2.0
// DeviceSteps: carries out steps on the caller's thread, where a device computes them: submit()
// enqueues a step and returns, behind one that still runs where StepExecutor allows it, so that the
// device goes on to the next step without waiting for the host.
//
// Threading: confined to one thread. Cost: no allocation; submit() waits for the step before where
// the new one has to know its tokens.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "request/batch_plan.h"
#include "request/step_output.h"
#include "runner/runner.h"
#include "runner/step/step_executor.h"

namespace heddle::runner {

class DeviceSteps {
 public:
  // The executor outlives this.
  explicit DeviceSteps(StepExecutor& executor);

  // As those of Runner. An error of either is the step's, and comes from wait().
  void submit(const request::BatchPlan& plan);
  Result<request::StepOutput> wait();
  void recycle(request::StepOutput output);

 private:
  struct Entry {
    request::StepOutput output;
    Status status;
    bool done = false;
  };

  [[nodiscard]] Entry& entry(int64_t step) {
    return entries_[static_cast<size_t>(step % kMaxStepsInFlight)];
  }

  void finish_oldest();

  StepExecutor& executor_;
  std::array<Entry, kMaxStepsInFlight> entries_;
  std::vector<request::StepOutput> spare_;
  const Status out_of_memory_;  // made while memory was left
  int64_t num_submitted_ = 0;
  int64_t num_waited_ = 0;
};

}  // namespace heddle::runner
