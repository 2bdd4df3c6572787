// SPDX-License-Identifier: Apache-2.0
// MediaMemory: limits the memory that pictures and patches use at one time. A picture waits for its
// share before it is decoded. It is refused only if it needs more than the whole budget. Shares are
// given in the order of arrival, so that small pictures cannot delay a large one without end.
//
// Threading: thread-safe. A share may be returned on another thread; the MediaMemory must outlive
// it.
#pragma once

#include <cstdint>
#include <deque>
#include <utility>

#include "core/mutex.h"
#include "media/image_decoder.h"
#include "media/media_error.h"

namespace heddle::media {

class MediaMemory {
 public:
  // Memory that a picture may use; the destructor returns it to the budget.
  class Share {
   public:
    Share() = default;

    Share(Share&& other) noexcept
        : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}

    Share& operator=(Share&& other) noexcept {
      std::swap(memory_, other.memory_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }

    ~Share() {
      if (memory_ != nullptr) memory_->give_back(bytes_);
    }

    // Keeps `bytes`, which must not be more than the share has, and returns the rest.
    void shrink(int64_t bytes) { memory_->give_back(std::exchange(bytes_, bytes) - bytes); }

   private:
    friend class MediaMemory;

    Share(MediaMemory* memory, int64_t bytes) : memory_(memory), bytes_(bytes) {}

    MediaMemory* memory_ = nullptr;
    int64_t bytes_ = 0;
  };

  explicit MediaMemory(int64_t budget_bytes) : budget_bytes_(budget_bytes) {}

  MediaMemory(const MediaMemory&) = delete;
  MediaMemory& operator=(const MediaMemory&) = delete;

  // Waits until the budget has room. `stop` is called when the wait begins and after each wake(),
  // under this object's lock, so it must not use the object.
  // Error: kTooExpensive if `bytes` is more than the whole budget; kCancelled if `stop` returned
  // true.
  MediaResult<Share> acquire(int64_t bytes, const StopCheck& stop = {}) HEDDLE_EXCLUDES(mutex_);

  // Makes every waiting acquire() call its `stop` again. Call it when a result of `stop` may have
  // changed.
  void wake() HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] int64_t used_bytes() const HEDDLE_EXCLUDES(mutex_);

 private:
  void give_back(int64_t bytes) HEDDLE_EXCLUDES(mutex_);

  const int64_t budget_bytes_;
  mutable Mutex mutex_;
  CondVar changed_;
  int64_t used_bytes_ HEDDLE_GUARDED_BY(mutex_) = 0;
  uint64_t next_ticket_ HEDDLE_GUARDED_BY(mutex_) = 0;
  // tickets of the waiting calls, oldest first
  std::deque<uint64_t> waiting_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::media
