// SPDX-License-Identifier: Apache-2.0
#include "server/call/event_inbox.h"

#include <chrono>
#include <utility>

#include "server/call/generation.h"

namespace heddle::server {
namespace {

// Longest time for deliveries in one turn of the I/O thread: long compared with a wake-up, short
// compared with any timeout.
constexpr std::chrono::milliseconds kTurn{5};

}  // namespace

void EventInbox::push(const std::shared_ptr<Generation>& generation, size_t choice,
                      RequestEvent event) {
  bool wake = false;
  {
    const MutexLock lock(mutex_);
    entries_.push_back({generation, choice, std::move(event)});
    wake = !std::exchange(awake_, true);
  }
  if (wake) post_([this] { deliver(); });
}

void EventInbox::deliver() {
  if (num_delivered_ == taken_.size()) {
    taken_.clear();
    num_delivered_ = 0;
    const MutexLock lock(mutex_);
    taken_.swap(entries_);
  }
  const auto end = std::chrono::steady_clock::now() + kTurn;
  try {
    while (num_delivered_ < taken_.size() && std::chrono::steady_clock::now() < end) {
      Entry& entry = taken_[num_delivered_++];
      const std::shared_ptr<Generation> generation = std::move(entry.generation);
      generation->on_event(entry.choice, std::move(entry.event));
    }
  } catch (...) {  // out of memory: this event is lost, the others are not
    post_([this] { deliver(); });
    throw;
  }
  {
    const MutexLock lock(mutex_);
    awake_ = num_delivered_ < taken_.size() || !entries_.empty();
    if (!awake_) return;
  }
  post_([this] { deliver(); });
}

}  // namespace heddle::server
