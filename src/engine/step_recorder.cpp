// SPDX-License-Identifier: Apache-2.0
#include "engine/step_recorder.h"

#include <utility>

#include <fmt/format.h>

namespace heddle::engine {

Status StepRecorder::start(int64_t max_steps, Engine::StepsCallback on_done) {
  if (max_steps < 1 || max_steps > kMaxRecordedSteps) {
    return invalid_argument(
        fmt::format("{} steps cannot be recorded; 1 to {} can", max_steps, kMaxRecordedSteps));
  }
  const MutexLock lock(mutex_);
  if (recording_) return invalid_argument("a recording of steps runs already; stop it first");
  max_steps_ = static_cast<size_t>(max_steps);
  steps_.clear();
  steps_.reserve(max_steps_);
  on_done_ = std::move(on_done);
  recording_ = true;
  return ok_status();
}

Status StepRecorder::stop() {
  std::vector<StepRecord> steps;
  Engine::StepsCallback on_done;
  {
    const MutexLock lock(mutex_);
    if (!recording_) return invalid_argument("no steps are being recorded; start that first");
    recording_ = false;
    steps.swap(steps_);
    on_done = std::exchange(on_done_, nullptr);
  }
  on_done(std::move(steps));
  return ok_status();
}

void StepRecorder::on_step(int64_t number, const StepFacts& facts,
                           const scheduler::SchedulerStats& stats) {
  if (!recording_.load(std::memory_order_relaxed)) return;
  std::vector<StepRecord> steps;
  Engine::StepsCallback on_done;
  {
    const MutexLock lock(mutex_);
    if (!recording_) return;
    steps_.push_back({.number = number,
                      .plan_seconds = facts.plan_seconds,
                      .launched_seconds = facts.launched_seconds,
                      .seconds = facts.seconds,
                      .end_seconds = facts.end_seconds,
                      .prefill_tokens = facts.prefill_tokens,
                      .cached_tokens = facts.cached_tokens,
                      .new_sequences = facts.new_sequences,
                      .decode_sequences = facts.decode_sequences,
                      .num_running = stats.num_running,
                      .num_waiting = stats.num_waiting});
    if (steps_.size() < max_steps_) return;
    recording_ = false;
    steps.swap(steps_);
    on_done = std::exchange(on_done_, nullptr);
  }
  on_done(std::move(steps));
}

}  // namespace heddle::engine
