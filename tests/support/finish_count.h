// SPDX-License-Identifier: Apache-2.0
// FinishCount: the requests of a test that have ended. Their callbacks count, the test waits; what
// a callback wrote before add() is there after wait_for().
//
// Threading: thread-safe.
#pragma once

#include <cstddef>

#include "core/mutex.h"

namespace heddle::testing {

class FinishCount {
 public:
  void add() HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    ++count_;
    changed_.notify_all();
  }

  // Until so many have ended.
  void wait_for(size_t count) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    changed_.wait(mutex_, [&]() HEDDLE_REQUIRES(mutex_) { return count_ >= count; });
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  size_t count_ HEDDLE_GUARDED_BY(mutex_) = 0;
};

}  // namespace heddle::testing
