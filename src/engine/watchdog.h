// SPDX-License-Identifier: Apache-2.0
// Watchdog: detects that there is work and no step ends. Its caller calls look() once every
// period(). The watchdog adds up the time between calls during which there was work and no further
// step had ended.
//
// A gap between two calls counts as two periods at most: a process that was stopped, or a machine
// that slept, is not stuck.
//
// StepAllowance: how much longer than usual the steps in flight may take before that means a hang,
// judged by the steps that have ended. A prompt chunk of a large model takes minutes on a CPU, and
// a slow engine is not stuck.
//
// WatchdogThread calls a watchdog once a period, on a thread of its own.
//
// Threading: Watchdog and StepAllowance are thread-confined and get the time from their callers.
//            WatchdogThread is created and destroyed by one thread; its callbacks run on its own
//            thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>

#include "core/mutex.h"
#include "engine/step_log.h"

namespace heddle::engine {

class Watchdog {
 public:
  explicit Watchdog(double timeout_seconds);  // above 0 (checked)

  [[nodiscard]] std::chrono::duration<double> period() const { return period_; }

  // True when no step has ended for `stretch` times the timeout although there was work; counting
  // then restarts from zero.
  bool look(double now_seconds, int64_t steps_ended, bool works, double stretch = 1);

 private:
  double timeout_seconds_;
  std::chrono::duration<double> period_;
  double stuck_seconds_ = 0;
  double last_look_ = 0;
  int64_t steps_ended_ = 0;
  bool worked_ = false;
};

class StepAllowance {
 public:
  // `timeout_seconds`: the watchdog's timeout; 0: there is no watchdog.
  explicit StepAllowance(double timeout_seconds);

  void count(const StepFacts& ended);

  // The factor by which the timeout is stretched while these steps run. It exceeds 1 only if, at
  // the pace of the slowest token so far, they may take longer than stuck_seconds(). It is 10 until
  // a step has ended.
  [[nodiscard]] double stretch(std::span<const StepFacts> in_flight) const;

  // An engine with work counts as stuck if no step has ended for this many seconds times stretch().
  // It is a tenth of the watchdog's timeout, or 30 s without a watchdog.
  [[nodiscard]] double stuck_seconds() const { return stuck_seconds_; }

 private:
  double stuck_seconds_;
  // Largest number of seconds per token of a step so far, decaying slowly; 0: no step has ended.
  double seconds_per_token_ = 0;
};

class WatchdogThread {
 public:
  // Asks the engine for its progress once a period, passes it to Watchdog::look() and returns the
  // result.
  using Look = std::function<bool(Watchdog& watchdog)>;

  // `on_stuck` is called whenever `look` returns true. Throws std::system_error when the system
  // cannot start a thread.
  WatchdogThread(double timeout_seconds, Look look, std::function<void()> on_stuck);

  ~WatchdogThread();
  WatchdogThread(const WatchdogThread&) = delete;
  WatchdogThread& operator=(const WatchdogThread&) = delete;

 private:
  void run() HEDDLE_EXCLUDES(mutex_);

  Watchdog watchdog_;
  const Look look_;
  const std::function<void()> on_stuck_;
  Mutex mutex_;
  CondVar stop_changed_;
  bool stop_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::engine
