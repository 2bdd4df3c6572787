// SPDX-License-Identifier: Apache-2.0
// Watchdog: notices that there is work and nothing moves. It is asked to look again and again,
// every period(), and adds up the time between looks at which there was work and not one step more
// had ended.
//
// Time in which nobody looked counts for two periods at most: a process that was stopped, or a
// machine that slept, is not stuck.
//
// WatchdogThread asks a watchdog to look, on a thread of its own.
//
// Threading: Watchdog is thread-confined and takes the time from its caller. WatchdogThread is made
// and destroyed by one thread; its functions run on its own.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <thread>

#include "core/mutex.h"

namespace heddle::engine {

class Watchdog {
 public:
  explicit Watchdog(double timeout_seconds);  // more than 0 (checked)

  [[nodiscard]] std::chrono::duration<double> period() const { return period_; }

  // True when nothing has moved for so long; then it starts again from zero.
  bool look(double now_seconds, int64_t steps_ended, bool works);

 private:
  double timeout_seconds_;
  std::chrono::duration<double> period_;
  double stuck_seconds_ = 0;
  double last_look_ = 0;
  int64_t steps_ended_ = 0;
  bool worked_ = false;
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
