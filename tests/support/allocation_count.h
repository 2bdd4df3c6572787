// SPDX-License-Identifier: Apache-2.0
// AllocationCount counts calls of operator new in the whole program while it lives, PeakMemory the
// bytes. Linking allocation_count.cpp replaces the global operators, except under a sanitizer,
// which has its own.
#pragma once

#include <cstdint>

namespace heddle::testing {

class AllocationCount {
 public:
  // False in sanitizer builds: tests that count skip then.
  [[nodiscard]] static bool supported();

  AllocationCount();
  [[nodiscard]] int64_t count() const;

 private:
  int64_t start_;
};

// PeakMemory is the largest number of bytes that operator new had handed out at once, beyond those
// at its construction. One lives at a time; allocations of all threads count.
class PeakMemory {
 public:
  // False in sanitizer builds: tests that measure skip then.
  [[nodiscard]] static bool supported() { return AllocationCount::supported(); }

  PeakMemory();
  [[nodiscard]] int64_t bytes() const;

 private:
  int64_t start_;
};

}  // namespace heddle::testing
