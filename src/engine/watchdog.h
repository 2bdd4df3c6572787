// SPDX-License-Identifier: Apache-2.0
// Watchdog: notices that work is there and nothing moves. It is asked to look again and again,
// every period(), and adds up the time between looks at which there was work and not one step more
// had ended.
//
// Time in which nobody looked counts for two periods at most: a process that was stopped, or a
// machine that slept, is not stuck.
//
// Threading: thread-confined. Time comes from the caller.
#pragma once

#include <chrono>
#include <cstdint>

namespace heddle::engine {

class Watchdog {
 public:
  explicit Watchdog(double timeout_seconds);  // more than 0 (checked)

  [[nodiscard]] std::chrono::duration<double> period() const { return period_; }

  // True when nothing has moved for so long; then it begins anew.
  bool look(double now_seconds, int64_t steps_ended, bool works);

 private:
  double timeout_seconds_;
  std::chrono::duration<double> period_;
  double stuck_seconds_ = 0;
  double last_look_ = 0;
  int64_t steps_ended_ = 0;
  bool worked_ = false;
};

}  // namespace heddle::engine
