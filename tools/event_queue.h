// SPDX-License-Identifier: Apache-2.0
// EventQueue carries a request's events from the engine's thread, which must not wait, to one that
// prints.
//
// Threading: push() and pop() from any thread. The queue may end as soon as the last event was
// popped, even if the push() that brought it has not returned.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include <heddle/request.h>

namespace heddle::tools {

class EventQueue {
 public:
  // `tag` tells requests apart.
  void push(size_t tag, const RequestEvent& event) {
    const std::lock_guard lock(mutex_);
    events_.emplace_back(tag, event);
    arrived_.notify_one();  // under the lock: who pops the last event may end the queue at once
  }

  // Waits for the next event.
  std::pair<size_t, RequestEvent> pop() {
    std::unique_lock lock(mutex_);
    arrived_.wait(lock, [this] { return !events_.empty(); });
    auto next = std::move(events_.front());
    events_.pop_front();
    return next;
  }

 private:
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<std::pair<size_t, RequestEvent>> events_;  // guarded by mutex_
};

}  // namespace heddle::tools
