// SPDX-License-Identifier: Apache-2.0
// Activity: the state of the engine thread that other threads may see: counters, the steps in
// flight, whether the engine is paused. Used by statistics, by health checks, and by the watchdog's
// log when the engine hangs.
//
// Threading: thread-safe. The engine thread writes, any thread reads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include <heddle/engine.h>

#include "core/mutex.h"
#include "engine/inbox.h"
#include "engine/step_log.h"
#include "engine/watchdog.h"
#include "runner/runner.h"

namespace heddle::engine {

class Activity {
 public:
  // The watchdog's timeout, from which `stuck_after_seconds` is derived; 0 without a watchdog.
  explicit Activity(double watchdog_seconds) : allowance_(watchdog_seconds) {}

  // ---- The engine thread ----

  // Sets all fields of EngineStats except `paused`, `last_step_seconds_ago` and
  // `stuck_after_seconds`.
  void show(const EngineStats& stats) HEDDLE_EXCLUDES(mutex_);

  // Sets the steps in flight, oldest first, and the time at which the last step ended.
  void show_steps(std::span<const StepFacts> in_flight, double last_end_seconds)
      HEDDLE_EXCLUDES(mutex_);

  void count_step(const StepFacts& ended) HEDDLE_EXCLUDES(mutex_);

  void set_paused(bool paused, double now_seconds) HEDDLE_EXCLUDES(mutex_);

  // ---- Any thread ----

  // The counters of the last show(), plus the requests that are still in the inbox.
  [[nodiscard]] EngineStats stats(const Inbox::Load& inbox, double now_seconds) const
      HEDDLE_EXCLUDES(mutex_);

  // StepAllowance::stretch() for the steps in flight: how much longer than usual they may take.
  [[nodiscard]] double stretch() const HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] std::string describe(double now_seconds) const HEDDLE_EXCLUDES(mutex_);

 private:
  mutable Mutex mutex_;
  EngineStats stats_ HEDDLE_GUARDED_BY(mutex_);
  // Time at which a step or a pause last ended.
  double last_progress_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::array<StepFacts, runner::kMaxStepsInFlight> steps_ HEDDLE_GUARDED_BY(mutex_);
  size_t num_steps_ HEDDLE_GUARDED_BY(mutex_) = 0;
  StepAllowance allowance_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::engine
