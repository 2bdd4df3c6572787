// SPDX-License-Identifier: Apache-2.0
// StepThread: carries steps out one after the other on a thread of its own, so that whoever plans
// them books the step before and plans the next one meanwhile.
//
// The plan of a step, and what an output holds, pass from thread to thread through one mutex: what
// the caller wrote before submit() is seen by the step, what the step wrote is seen after wait().
// Both sides sleep while they wait; an idle engine uses no CPU.
//
// Threading: submit(), wait() and recycle() are confined to one thread, the caller's; the step runs
// on the other. Cost: two wake-ups a step, hidden while another step is in flight; no allocation.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "request/batch_plan.h"
#include "request/step_output.h"
#include "runner/runner.h"

namespace heddle::runner {

class StepThread {
 public:
  // Fills an output whose tokens are empty. What it throws becomes the step's error.
  using Step = std::function<Status(const request::BatchPlan&, request::StepOutput&)>;

  // Error: kResourceExhausted when the system has no thread.
  static Result<std::unique_ptr<StepThread>> start(Step step);

  // Waits for the step that is being carried out; those behind it are dropped.
  ~StepThread();
  StepThread(const StepThread&) = delete;
  StepThread& operator=(const StepThread&) = delete;

  // As those of Runner.
  void submit(const request::BatchPlan& plan);
  Result<request::StepOutput> wait();
  void recycle(request::StepOutput output);

 private:
  struct Entry {
    const request::BatchPlan* plan = nullptr;
    request::StepOutput output;
    Status status;
  };

  explicit StepThread(Step step);

  void run();
  Status carry_out(Entry& entry);

  [[nodiscard]] Entry& entry(int64_t step) {
    return entries_[static_cast<size_t>(step % kMaxStepsInFlight)];
  }

  Step step_;
  const Status out_of_memory_;              // made while there was some
  std::vector<request::StepOutput> spare_;  // the caller's
  int64_t num_waited_ = 0;                  // the caller's

  std::mutex mutex_;
  std::condition_variable work_;  // for the thread: a step or the end
  std::condition_variable done_;  // for the caller
  int64_t num_submitted_ = 0;     // guarded by mutex_, as the two below
  int64_t num_done_ = 0;
  bool stopping_ = false;

  // Steps [num_done_, num_submitted_) belong to the thread, the others to the caller.
  std::array<Entry, kMaxStepsInFlight> entries_;
  std::thread thread_;
};

}  // namespace heddle::runner
