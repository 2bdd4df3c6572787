// SPDX-License-Identifier: Apache-2.0
// StepThread: runs steps one after the other on a thread of its own, so that the caller can
// meanwhile process the last step's output and plan the next step.
//
// One mutex passes plans and outputs between the threads: a step sees everything that the caller
// wrote before submit(), and after wait() the caller sees everything that the step wrote. Both
// threads sleep while they wait; an idle engine uses no CPU.
//
// Threading: submit(), wait() and recycle() are confined to one thread, the caller's; the step runs
// on the other. begin_stop() is thread-safe. Cost: two wake-ups a step, hidden while another step
// is in flight; no allocation.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "core/mutex.h"
#include "request/batch_plan.h"
#include "request/step_output.h"
#include "runner/runner.h"

namespace heddle::runner {

class StepThread {
 public:
  // Fills in an empty output. An exception becomes the step's error.
  using Step = std::function<Status(const request::BatchPlan&, request::StepOutput&)>;

  // Error: kResourceExhausted if the system does not start a thread.
  static Result<std::unique_ptr<StepThread>> start(Step step);

  // Calls begin_stop(), then waits for the running step.
  ~StepThread();
  StepThread(const StepThread&) = delete;
  StepThread& operator=(const StepThread&) = delete;

  // As in Runner. Called by one thread only.
  void submit(const request::BatchPlan& plan);
  Result<request::StepOutput> wait();
  void recycle(request::StepOutput output);

  // Prevents new steps: submitted steps that have not started are dropped, and wait() must not be
  // called for them. Does not block.
  void begin_stop() HEDDLE_EXCLUDES(mutex_);

 private:
  struct Entry {
    const request::BatchPlan* plan = nullptr;
    request::StepOutput output;
    Status status;
  };

  explicit StepThread(Step step);

  void run();

  [[nodiscard]] Entry& entry(int64_t step) {
    return entries_[static_cast<size_t>(step % kMaxStepsInFlight)];
  }

  Step step_;
  const Status out_of_memory_;              // error created in advance, while memory is left
  std::vector<request::StepOutput> spare_;  // empty outputs for reuse; accessed by the caller only
  int64_t num_waited_ = 0;                  // number of steps waited for; accessed by the caller
                                            // only

  Mutex mutex_;
  CondVar work_;  // wakes the step thread: a new step, or the end
  CondVar done_;  // wakes the caller: a step is done
  int64_t num_submitted_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t num_done_ HEDDLE_GUARDED_BY(mutex_) = 0;
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;

  // Not guarded by the mutex: entries of the steps [num_done_, num_submitted_) belong to the step
  // thread, the others to the caller.
  std::array<Entry, kMaxStepsInFlight> entries_;
  std::thread thread_;
};

}  // namespace heddle::runner
