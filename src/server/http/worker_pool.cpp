// SPDX-License-Identifier: Apache-2.0
#include "server/http/worker_pool.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>
#include <sys/resource.h>

#include "core/log.h"

namespace heddle::server {

WorkerPool::WorkerPool(int num_threads, size_t max_queued, int niceness)
    : max_queued_(max_queued), max_large_(std::max(num_threads - 1, 1)) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this, niceness] { run(niceness); });
}

WorkerPool::~WorkerPool() {
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
    small_.clear();
    large_.clear();
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

bool WorkerPool::submit(WorkSize size, std::function<void()> work) {
  {
    const MutexLock lock(mutex_);
    if (stopping_ || small_.size() + large_.size() >= max_queued_) return false;
    (size == WorkSize::kLarge ? large_ : small_).push_back({next_number_++, std::move(work)});
  }
  changed_.notify_one();
  return true;
}

std::deque<WorkerPool::Item>* WorkerPool::next_queue() {
  const bool may_be_large = !large_.empty() && num_large_ < max_large_;
  if (small_.empty()) return may_be_large ? &large_ : nullptr;
  return may_be_large && large_.front().number < small_.front().number ? &large_ : &small_;
}

void WorkerPool::run(int niceness) {
  // In Linux this affects only this thread. If it is refused, the thread keeps the normal priority.
  if (niceness > 0) (void)setpriority(PRIO_PROCESS, 0, niceness);
  MutexLock lock(mutex_);
  while (true) {
    std::deque<Item>* queue = nullptr;
    changed_.wait(mutex_, [&]() HEDDLE_REQUIRES(mutex_) {
      return stopping_ || (queue = next_queue()) != nullptr;
    });
    if (stopping_) return;
    const bool is_large = queue == &large_;
    std::function<void()> work = std::move(queue->front().work);
    queue->pop_front();
    num_large_ += is_large ? 1 : 0;
    lock.unlock();
    try {
      work();
    } catch (const std::exception& error) {
      // At most out of memory for an enormous body, because work handles its own errors.
      log_error(fmt::format("a server worker caught an exception: {}", error.what()));
    }
    work = nullptr;  // destroys captured objects here, without the lock
    lock.lock();
    if (is_large && num_large_-- == max_large_) changed_.notify_one();
  }
}

}  // namespace heddle::server
