// SPDX-License-Identifier: Apache-2.0
#include "engine/watchdog.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace heddle::engine {

namespace {

constexpr double kMaxPeriodSeconds = 5;
constexpr double kLooks = 10;  // number of look() calls during one timeout

// Share of the timeout after which /health reports the engine as stuck.
constexpr double kStuckShare = 0.1;
constexpr double kStuckSecondsWithout = 30;  // limit in seconds without a watchdog
constexpr double kUnknownStretch = 10;
// Factor by which a step may exceed the time that its tokens take at the pace of the slowest token
// so far: attention grows with the context, and the machine may be busy with other programs.
constexpr double kSlack = 8;
constexpr double kForget = 0.999;  // decay of the slowest pace per step: a pause of the whole
                                   // process must not count for ever

int64_t num_tokens(const StepFacts& step) { return step.prefill_tokens + step.decode_sequences; }

}  // namespace

Watchdog::Watchdog(double timeout_seconds)
    : timeout_seconds_(timeout_seconds),
      period_(std::min(timeout_seconds / kLooks, kMaxPeriodSeconds)) {
  HEDDLE_CHECK(timeout_seconds > 0);
}

bool Watchdog::look(double now_seconds, int64_t steps_ended, bool works, double stretch) {
  const bool stuck = works && worked_ && steps_ended == steps_ended_;
  const double since_last = std::min(now_seconds - last_look_, 2 * period_.count());
  stuck_seconds_ = stuck ? stuck_seconds_ + since_last : 0;
  last_look_ = now_seconds;
  steps_ended_ = steps_ended;
  worked_ = works;
  if (stuck_seconds_ < timeout_seconds_ * stretch) return false;
  stuck_seconds_ = 0;
  return true;
}

StepAllowance::StepAllowance(double timeout_seconds)
    : stuck_seconds_(timeout_seconds > 0 ? timeout_seconds * kStuckShare : kStuckSecondsWithout) {}

void StepAllowance::count(const StepFacts& ended) {
  const auto tokens = static_cast<double>(std::max<int64_t>(num_tokens(ended), 1));
  seconds_per_token_ = std::max(ended.seconds / tokens, seconds_per_token_ * kForget);
}

double StepAllowance::stretch(std::span<const StepFacts> in_flight) const {
  if (seconds_per_token_ == 0) return kUnknownStretch;
  int64_t tokens = 0;
  for (const StepFacts& step : in_flight) tokens += num_tokens(step);
  const double expected = seconds_per_token_ * static_cast<double>(std::max<int64_t>(tokens, 1));
  return std::max(kSlack * expected / stuck_seconds_, 1.0);
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
