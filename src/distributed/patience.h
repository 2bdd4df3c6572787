// SPDX-License-Identifier: Apache-2.0
// Waiting for other ranks for a limited time.
#pragma once

#include <chrono>

#include "core/mutex.h"

namespace heddle::distributed {

// Waits until `condition` is true, at most for `limit`, and returns condition(). The time is
// measured in tenths, each of which counts once however long it took: a process that was stopped
// for minutes has used up one tenth, and its ranks can still arrive in the others.
template <typename Condition>
[[nodiscard]] bool wait_for_ranks(CondVar& changed, Mutex& mutex, std::chrono::milliseconds limit,
                                  Condition condition) HEDDLE_REQUIRES(mutex) {
  constexpr int kParts = 10;
  for (int part = 0; part < kParts; ++part) {
    if (changed.wait_for(mutex, std::chrono::microseconds(limit) / kParts, condition)) return true;
  }
  return false;
}

}  // namespace heddle::distributed
