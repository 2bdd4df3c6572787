// SPDX-License-Identifier: Apache-2.0
#include "runner/step/device_steps.h"

#include <utility>

#include "core/check.h"
#include "runner/step/guarded_step.h"

namespace heddle::runner {

DeviceSteps::DeviceSteps(StepExecutor& executor)
    : executor_(executor), out_of_memory_(step_out_of_memory()) {
  spare_.resize(kMaxStepsInFlight + 1);  // one more output is with the caller
}

void DeviceSteps::submit(const request::BatchPlan& plan) {
  HEDDLE_CHECK_LT(num_submitted_ - num_waited_, int64_t{kMaxStepsInFlight});
  if (num_submitted_ > num_waited_ && !entry(num_waited_).done &&
      !executor_.can_begin_behind(plan)) {
    finish_oldest();
  }
  Entry& next = entry(num_submitted_++);
  if (!spare_.empty()) {
    next.output = std::move(spare_.back());
    spare_.pop_back();
  }
  next.status = guarded_step(out_of_memory_, [&] { return executor_.begin(plan); });
  next.done = !next.status.ok();
}

void DeviceSteps::finish_oldest() {
  Entry& oldest = entry(num_waited_);
  oldest.status = guarded_step(out_of_memory_, [&] { return executor_.finish(oldest.output); });
  oldest.done = true;
}

Result<request::StepOutput> DeviceSteps::wait() {
  HEDDLE_CHECK_LT(num_waited_, num_submitted_);
  if (!entry(num_waited_).done) finish_oldest();
  Entry& oldest = entry(num_waited_++);
  if (!oldest.status.ok()) {
    recycle(std::move(oldest.output));
    return std::move(oldest.status);
  }
  return std::move(oldest.output);
}

void DeviceSteps::recycle(request::StepOutput output) {
  output.clear();
  if (spare_.size() < spare_.capacity()) spare_.push_back(std::move(output));
}

}  // namespace heddle::runner
