// SPDX-License-Identifier: Apache-2.0
// WorkerPool: a few threads for work that would block the I/O thread: parsing bodies, rendering
// templates, tokenizing, writing long answers.
//
// Work runs in the order of arrival, except that large work, which may take seconds, leaves one
// thread free for small work if there is more than one.
//
// Threading: thread-safe. The queue is bounded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "core/mutex.h"

namespace heddle::server {

enum class WorkSize { kSmall, kLarge };

class WorkerPool {
 public:
  // `niceness` above 0 lowers the priority of the threads when CPUs are short (setpriority(2)).
  WorkerPool(int num_threads, size_t max_queued, int niceness = 0);

  // Drops queued work and waits for running work.
  ~WorkerPool();

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // Queues work. Returns false when the queue is full or the pool is ending; `work` is then
  // dropped.
  [[nodiscard]] bool submit(WorkSize size, std::function<void()> work) HEDDLE_EXCLUDES(mutex_);

 private:
  struct Item {
    int64_t number;  // number of the item, in order of arrival
    std::function<void()> work;
  };

  void run(int niceness) HEDDLE_EXCLUDES(mutex_);

  // The queue whose first item may run now; null if none may.
  std::deque<Item>* next_queue() HEDDLE_REQUIRES(mutex_);

  const size_t max_queued_;
  const int max_large_;  // most large items that run at once
  Mutex mutex_;
  CondVar changed_;
  std::deque<Item> small_ HEDDLE_GUARDED_BY(mutex_);
  std::deque<Item> large_ HEDDLE_GUARDED_BY(mutex_);
  int64_t next_number_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int num_large_ HEDDLE_GUARDED_BY(mutex_) = 0;  // number of large items that are running
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace heddle::server
