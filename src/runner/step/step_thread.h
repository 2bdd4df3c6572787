// SPDX-License-Identifier: Apache-2.0
// StepThread: runs steps one after the other on a thread of its own, so that the caller can process
// the output of the last step and plan the next one in the meantime.
//
// Plans and outputs pass from thread to thread through one mutex: the step sees everything that the
// caller wrote before submit(), and the caller sees everything that the step wrote after wait().
// Both threads sleep while they wait; an idle engine uses no CPU.
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
  // Fills an output whose tokens are empty. An exception becomes the step's error.
  using Step = std::function<Status(const request::BatchPlan&, request::StepOutput&)>;

  // Error: kResourceExhausted when the system has no thread.
  static Result<std::unique_ptr<StepThread>> start(Step step);

  // begin_stop(), then waits for the step that is running.
  ~StepThread();
  StepThread(const StepThread&) = delete;
  StepThread& operator=(const StepThread&) = delete;

  // As those of Runner.
  void submit(const request::BatchPlan& plan);
  Result<request::StepOutput> wait();
  void recycle(request::StepOutput output);

  // No step begins from now on: those behind the one that is running are dropped, and must not be
  // waited for. Does not wait.
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
  const Status out_of_memory_;              // made while memory was left
  std::vector<request::StepOutput> spare_;  // the caller's
  int64_t num_waited_ = 0;                  // the caller's

  Mutex mutex_;
  CondVar work_;  // wakes the thread: a step, or the end
  CondVar done_;  // wakes the caller
  int64_t num_submitted_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t num_done_ HEDDLE_GUARDED_BY(mutex_) = 0;
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;

  // Not guarded as a whole: entries of steps [num_done_, num_submitted_) belong to the thread, the
  // others to the caller.
  std::array<Entry, kMaxStepsInFlight> entries_;
  std::thread thread_;
};

}  // namespace heddle::runner
