// SPDX-License-Identifier: Apache-2.0
// StepRecorder: records the work and the times of steps between start() and stop(), for profiles.
//
// Threading: thread-safe.
// Cost:      on_step() is one relaxed load while nothing is recorded. A recording allocates its
//            memory at the start, not per step.
// Bounds:    a recording ends after kMaxRecordedSteps steps at the latest.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include <heddle/engine.h>

#include "core/mutex.h"
#include "engine/step_log.h"

namespace heddle::engine {

class StepRecorder {
 public:
  // Starts a recording. Errors: those of Engine::record_steps().
  Status start(int64_t max_steps, Engine::StepsCallback on_done) HEDDLE_EXCLUDES(mutex_);

  // Ends the recording and, before it returns, calls the callback of start(). Errors: those of
  // Engine::stop_recording().
  Status stop() HEDDLE_EXCLUDES(mutex_);

  void on_step(int64_t number, const StepFacts& facts, const scheduler::SchedulerStats& stats)
      HEDDLE_EXCLUDES(mutex_);

 private:
  std::atomic<bool> recording_{false};  // only written while mutex_ is held
  Mutex mutex_;
  size_t max_steps_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::vector<StepRecord> steps_ HEDDLE_GUARDED_BY(mutex_);
  Engine::StepsCallback on_done_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::engine
