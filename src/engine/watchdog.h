// SPDX-License-Identifier: Apache-2.0
// Watchdog: notices that there is work and nothing moves. Its caller has it look every
// period(); it adds up the time between looks at which there was work and no further step had
// ended.
//
// A longer gap between two looks counts as two periods at most: a process that was stopped, or a
// machine that slept, is not stuck.
//
// StepAllowance: how much longer than usual the steps in flight may take before that is a sign of
// something wrong, judged by the steps that have ended: a chunk of a large model's prompt takes
// minutes on a CPU, and an engine that is slow is not stuck.
//
// WatchdogThread asks a watchdog to look, on a thread of its own.
//
// Threading: Watchdog and StepAllowance are thread-confined and take the time from their callers.
//            WatchdogThread is made and destroyed by one thread; its functions run on its own.
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
  explicit Watchdog(double timeout_seconds);  // more than 0 (checked)

  [[nodiscard]] std::chrono::duration<double> period() const { return period_; }

  // True when nothing has moved for `stretch` times the timeout; then it starts again from zero.
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
  // `timeout_seconds` of the watchdog; 0: there is none.
  explicit StepAllowance(double timeout_seconds);

  void count(const StepFacts& ended);

  // The factor by which the timeout is stretched while these steps run: above 1 only if, by the
  // slowest token so far, they may take longer than stuck_seconds(). 10 until a step has ended.
  [[nodiscard]] double stretch(std::span<const StepFacts> in_flight) const;

  // Without a step for so long, times stretch(), an engine with work counts as stuck: a tenth of
  // the watchdog's timeout.
  [[nodiscard]] double stuck_seconds() const { return stuck_seconds_; }

 private:
  double stuck_seconds_;
  // Moving maximum over steps, which decays slowly; 0: no step has ended.
  double seconds_per_token_ = 0;
};

class WatchdogThread {
 public:
  // Asks the engine once a period and hands the answer to look(); returns that of look().
  using Look = std::function<bool(Watchdog& watchdog)>;

  // `on_stuck` runs whenever `look` returns true. Throws std::system_error when the system has no
  // thread.
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
