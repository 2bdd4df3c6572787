// SPDX-License-Identifier: Apache-2.0
#include "runner/step/step_thread.h"

#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/no_thread.h"
#include "runner/step/guarded_step.h"

namespace heddle::runner {

Result<std::unique_ptr<StepThread>> StepThread::start(Step step) {
  std::unique_ptr<StepThread> thread(new StepThread(std::move(step)));
  try {
    thread->thread_ = std::thread([raw = thread.get()] { raw->run(); });
  } catch (const std::system_error& error) {
    return no_thread("for the runner", error);
  }
  return thread;
}

StepThread::StepThread(Step step) : step_(std::move(step)), out_of_memory_(step_out_of_memory()) {
  spare_.resize(kMaxStepsInFlight + 1);  // one more output is with the caller
}

StepThread::~StepThread() {
  begin_stop();
  if (thread_.joinable()) thread_.join();
}

void StepThread::submit(const request::BatchPlan& plan) {
  {
    const MutexLock lock(mutex_);
    HEDDLE_CHECK_LT(num_submitted_ - num_waited_, int64_t{kMaxStepsInFlight});
    Entry& next = entry(num_submitted_);
    next.plan = &plan;
    if (!spare_.empty()) {
      next.output = std::move(spare_.back());
      spare_.pop_back();
    }
    ++num_submitted_;
  }
  work_.notify_one();
}

Result<request::StepOutput> StepThread::wait() {
  {
    const MutexLock lock(mutex_);
    HEDDLE_CHECK_LT(num_waited_, num_submitted_);
    done_.wait(mutex_, [this]() HEDDLE_REQUIRES(mutex_) { return num_done_ > num_waited_; });
  }
  Entry& oldest = entry(num_waited_++);
  if (!oldest.status.ok()) {
    recycle(std::move(oldest.output));
    return std::move(oldest.status);
  }
  return std::move(oldest.output);
}

void StepThread::recycle(request::StepOutput output) {
  output.clear();
  if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(output));
}

void StepThread::begin_stop() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  work_.notify_one();
}

void StepThread::run() {
  for (int64_t step = 0;; ++step) {
    {
      const MutexLock lock(mutex_);
      work_.wait(mutex_,
                 [&]() HEDDLE_REQUIRES(mutex_) { return stopping_ || num_submitted_ > step; });
      if (stopping_) return;
    }
    Entry& current = entry(step);
    current.status =
        guarded_step(out_of_memory_, [&] { return step_(*current.plan, current.output); });
    {
      const MutexLock lock(mutex_);
      ++num_done_;
    }
    done_.notify_one();
  }
}

}  // namespace heddle::runner
