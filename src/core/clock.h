// SPDX-License-Identifier: Apache-2.0
// Time comes from a Clock, so that the whole engine runs under a simulated one in tests.
// Times are seconds since an arbitrary start, monotonic.
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

// Stands still until a test moves it. Thread-confined: for tests.
class ManualClock final : public Clock {
 public:
  [[nodiscard]] double now_seconds() const override { return now_seconds_; }

  void advance_seconds(double seconds) { now_seconds_ += seconds; }

 private:
  double now_seconds_ = 0;
};

}  // namespace heddle
