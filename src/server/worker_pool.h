// SPDX-License-Identifier: Apache-2.0
// WorkerPool: a few threads for what would hold up the I/O thread: parsing bodies, running
// templates, tokenizing.
//
// Threading: thread-safe. The queue is bounded.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace heddle::server {

class WorkerPool {
 public:
  WorkerPool(int num_threads, size_t max_queued);

  // Drops what is queued, waits for what runs.
  ~WorkerPool();

  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False when the queue is full; `work` is dropped then.
  [[nodiscard]] bool submit(std::function<void()> work);

 private:
  void run();

  const size_t max_queued_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;  // guarded by mutex_
  bool stopping_ = false;                    // guarded by mutex_
  std::vector<std::thread> threads_;
};

}  // namespace heddle::server
