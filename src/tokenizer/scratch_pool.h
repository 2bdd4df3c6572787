// SPDX-License-Identifier: Apache-2.0
// ScratchPool lends working memory to const methods that many threads call at once. Each call
// borrows one object and returns it, so buffers and caches are reused without being bound to a
// thread.
//
// Threading: thread-safe. At most kMaxIdle idle objects are kept; others are freed when they are
// returned.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/mutex.h"

namespace heddle::tokenizer {

template <typename Scratch>
class ScratchPool {
 public:
  static constexpr size_t kMaxIdle = 16;

  class Lease {
   public:
    Lease(ScratchPool& pool, std::unique_ptr<Scratch> scratch)
        : pool_(pool), scratch_(std::move(scratch)) {}

    ~Lease() { pool_.give_back(std::move(scratch_)); }

    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    Scratch& operator*() const { return *scratch_; }

    Scratch* operator->() const { return scratch_.get(); }

   private:
    ScratchPool& pool_;
    std::unique_ptr<Scratch> scratch_;
  };

  [[nodiscard]] Lease take() HEDDLE_EXCLUDES(mutex_) {
    {
      const MutexLock lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<Scratch> scratch = std::move(idle_.back());
        idle_.pop_back();
        return Lease(*this, std::move(scratch));
      }
    }
    return Lease(*this, std::make_unique<Scratch>());
  }

 private:
  void give_back(std::unique_ptr<Scratch> scratch) HEDDLE_EXCLUDES(mutex_) {
    const MutexLock lock(mutex_);
    if (idle_.size() < kMaxIdle) idle_.push_back(std::move(scratch));
  }

  Mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> idle_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::tokenizer
