// SPDX-License-Identifier: Apache-2.0
// StepRecorder: keeps what the steps of a while computed and when, for profiles.
//
// Threading: thread-safe.
// Cost:      of on_step() one relaxed load while nothing is recorded; a recording allocates at its
//            start, not with its steps.
// Bounds:    kMaxRecordedSteps; a recording that has as many ends.
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
  // Errors: as Engine::record_steps().
  Status start(int64_t max_steps, Engine::StepsCallback on_done) HEDDLE_EXCLUDES(mutex_);

  // Calls the callback of start() before it returns. Errors: as Engine::stop_recording().
  Status stop() HEDDLE_EXCLUDES(mutex_);

  void on_step(int64_t number, const StepFacts& facts, const scheduler::SchedulerStats& stats)
      HEDDLE_EXCLUDES(mutex_);

 private:
  std::atomic<bool> recording_{false};  // written with the mutex
  Mutex mutex_;
  size_t max_steps_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::vector<StepRecord> steps_ HEDDLE_GUARDED_BY(mutex_);
  Engine::StepsCallback on_done_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::engine
