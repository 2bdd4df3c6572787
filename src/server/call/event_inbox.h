// SPDX-License-Identifier: Apache-2.0
// EventInbox: passes events from the engine's thread to the I/O thread. Events that arrive during
// one step are delivered with one wake-up. If the I/O thread falls behind, it delivers for a few
// milliseconds at a time, so that sockets and timers are served in between.
//
// Threading: push() is thread-safe, all other functions are only for the I/O thread.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include <heddle/request.h>

#include "core/mutex.h"

namespace heddle::server {

class Generation;

class EventInbox {
 public:
  // `post` runs a function on the I/O thread.
  explicit EventInbox(std::function<void(std::function<void()>)> post) : post_(std::move(post)) {}

  void push(const std::shared_ptr<Generation>& generation, size_t choice, RequestEvent event)
      HEDDLE_EXCLUDES(mutex_);

 private:
  struct Entry {
    std::shared_ptr<Generation> generation;
    size_t choice;
    RequestEvent event;
  };

  void deliver() HEDDLE_EXCLUDES(mutex_);

  const std::function<void(std::function<void()>)> post_;
  Mutex mutex_;
  std::vector<Entry> entries_ HEDDLE_GUARDED_BY(mutex_);
  bool awake_ HEDDLE_GUARDED_BY(mutex_) = false;  // a call of deliver() is posted to the I/O thread

  // Used by the I/O thread only: entries being delivered, and how many of them already are.
  std::vector<Entry> taken_;
  size_t num_delivered_ = 0;
};

}  // namespace heddle::server
