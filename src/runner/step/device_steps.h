// SPDX-License-Identifier: Apache-2.0
// DeviceSteps: runs steps on the caller's thread, for a device that computes asynchronously.
// submit() enqueues a step and returns, also while the step before still runs if StepExecutor
// allows it, so that the device begins the next step without waiting for the host.
//
// Threading: confined to one thread. Cost: no allocation; submit() waits for the step before if the
// new one needs its tokens.
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
  // `executor` outlives the object.
  explicit DeviceSteps(StepExecutor& executor);

  // As in Runner. The errors of both submit() and wait() are returned by wait().
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
  const Status out_of_memory_;  // error created in advance, while memory is left
  int64_t num_submitted_ = 0;
  int64_t num_waited_ = 0;
};

}  // namespace heddle::runner
