// SPDX-License-Identifier: Apache-2.0
#include "media/media_memory.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::media {

MediaResult<MediaMemory::Share> MediaMemory::acquire(int64_t bytes, const StopCheck& stop) {
  if (bytes > budget_bytes_) {
    return MediaError{
        MediaFault::kTooExpensive,
        fmt::format("the picture needs {} bytes of memory, and pictures have {} in all; scale it "
                    "down",
                    bytes, budget_bytes_)};
  }
  const MutexLock lock(mutex_);
  const uint64_t ticket = next_ticket_++;
  waiting_.push_back(ticket);
  bool stopped = false;
  changed_.wait(mutex_, [&]() HEDDLE_REQUIRES(mutex_) {
    stopped = stop && stop();
    return stopped || (waiting_.front() == ticket && used_bytes_ + bytes <= budget_bytes_);
  });
  waiting_.erase(std::ranges::find(waiting_, ticket));
  // The next waiting picture may fit, too.
  changed_.notify_all();
  if (stopped) return MediaError{MediaFault::kCancelled, "waiting for memory was stopped"};
  used_bytes_ += bytes;
  return Share(this, bytes);
}

void MediaMemory::wake() {
  const MutexLock lock(mutex_);
  changed_.notify_all();
}

int64_t MediaMemory::used_bytes() const {
  const MutexLock lock(mutex_);
  return used_bytes_;
}

void MediaMemory::give_back(int64_t bytes) {
  const MutexLock lock(mutex_);
  used_bytes_ -= bytes;
  changed_.notify_all();
}

}  // namespace heddle::media
