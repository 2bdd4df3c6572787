// SPDX-License-Identifier: Apache-2.0
// All time comes from a Clock, so that tests can run the whole engine with a simulated one. Times
// are monotonic seconds since an arbitrary start.
#pragma once

#include <chrono>

namespace heddle {

class Clock {
 public:
  virtual ~Clock() = default;
  [[nodiscard]] virtual double now_seconds() const = 0;
};

// The machine's monotonic clock. Thread-safe.
class SteadyClock final : public Clock {
 public:
  [[nodiscard]] double now_seconds() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// A clock that changes only when a test advances it. Thread-confined.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] double now_seconds() const override { return now_seconds_; }

  void advance_seconds(double seconds) { now_seconds_ += seconds; }

 private:
  double now_seconds_ = 0;
};

}  // namespace heddle
