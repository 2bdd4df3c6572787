// SPDX-License-Identifier: Apache-2.0
// AllocationCount counts calls of operator new in the whole program while it lives. Linking
// allocation_count.cpp replaces the global operators, except under a sanitizer, which has its own.
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

}  // namespace heddle::testing
