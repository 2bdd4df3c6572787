// SPDX-License-Identifier: Apache-2.0
// WorkerPool: a few threads for what would hold up the I/O thread: parsing bodies, running
// templates, tokenizing.
//
// Work is taken in the order it came, but large work, which may take seconds, leaves one thread to
// small work, wherever there is more than one.
//
// Threading: thread-safe. The queue is bounded.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace heddle::server {

enum class WorkSize { kSmall, kLarge };

class WorkerPool {
 public:
  WorkerPool(int num_threads, size_t max_queued);

  // Drops what is queued, waits for what runs.
  ~WorkerPool();

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full; `work` is dropped then.
  [[nodiscard]] bool submit(WorkSize size, std::function<void()> work);

 private:
  struct Item {
    int64_t number;  // in the order of arrival
    std::function<void()> work;
  };

  void run();
  std::deque<Item>* next_queue();  // null: nothing may begin now. Under mutex_

  const size_t max_queued_;
  const int max_large_;  // at once
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> small_;   // guarded by mutex_
  std::deque<Item> large_;   // guarded by mutex_
  int64_t next_number_ = 0;  // guarded by mutex_
  int num_large_ = 0;        // that run; guarded by mutex_
  bool stopping_ = false;    // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace heddle::server
