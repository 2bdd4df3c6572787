// SPDX-License-Identifier: Apache-2.0
// EventQueue: passes the events of requests from the engine thread, which must not wait, to a
// thread that prints them.
//
// Threading: push() and pop() from any thread. The queue may be destroyed as soon as the last event
// was popped, even if the push() that added it has not returned yet.
#pragma once

#include <deque>
#include <utility>

#include <heddle/request.h>

#include "core/mutex.h"

namespace heddle::tools {

class EventQueue {
 public:
  // Adds an event. `tag` identifies its request.
  void push(size_t tag, RequestEvent event) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    events_.emplace_back(tag, std::move(event));
    arrived_.notify_one();  // notified while locked, because the thread in pop() may destroy the
                            // queue right after
  }

  // Waits for the next event and removes it.
  std::pair<size_t, RequestEvent> pop() HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    arrived_.wait(mutex_, [this]() HEDDLE_REQUIRES(mutex_) { return !events_.empty(); });
    auto next = std::move(events_.front());
    events_.pop_front();
    return next;
  }

 private:
  Mutex mutex_;
  CondVar arrived_;
  std::deque<std::pair<size_t, RequestEvent>> events_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::tools
