// SPDX-License-Identifier: Apache-2.0
#include "engine/watchdog.h"

#include <algorithm>

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

}  // namespace heddle::engine
