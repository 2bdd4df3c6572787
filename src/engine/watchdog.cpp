// SPDX-License-Identifier: Apache-2.0
#include "engine/watchdog.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace heddle::engine {

namespace {

constexpr double kMaxPeriodSeconds = 5;
constexpr double kLooks = 10;  // in a timeout

}  // namespace

Watchdog::Watchdog(double timeout_seconds)
    : timeout_seconds_(timeout_seconds),
      period_(std::min(timeout_seconds / kLooks, kMaxPeriodSeconds)) {
  HEDDLE_CHECK(timeout_seconds > 0);
}

bool Watchdog::look(double now_seconds, int64_t steps_ended, bool works) {
  const bool stuck = works && worked_ && steps_ended == steps_ended_;
  const double since_last = std::min(now_seconds - last_look_, 2 * period_.count());
  stuck_seconds_ = stuck ? stuck_seconds_ + since_last : 0;
  last_look_ = now_seconds;
  steps_ended_ = steps_ended;
  worked_ = works;
  if (stuck_seconds_ < timeout_seconds_) return false;
  stuck_seconds_ = 0;
  return true;
}

WatchdogThread::WatchdogThread(double timeout_seconds, Look look, std::function<void()> on_stuck)
    : watchdog_(timeout_seconds),
      look_(std::move(look)),
      on_stuck_(std::move(on_stuck)),
      thread_([this] { run(); }) {}

WatchdogThread::~WatchdogThread() {
  {
    const MutexLock lock(mutex_);
    stop_ = true;
  }
  stop_changed_.notify_all();
  thread_.join();
}

void WatchdogThread::run() {
  MutexLock lock(mutex_);
  const auto stopped = [this]() HEDDLE_REQUIRES(mutex_) { return stop_; };
  while (!stop_changed_.wait_for(mutex_, watchdog_.period(), stopped)) {
    lock.unlock();
    if (look_(watchdog_)) on_stuck_();
    lock.lock();
  }
}

}  // namespace heddle::engine
