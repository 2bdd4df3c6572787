// SPDX-License-Identifier: Apache-2.0
#include "device/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "device/cpu_topology.h"

namespace heddle::device {

namespace {

// A pause takes about 60 ns on current x86 CPUs, so workers spin for some 60 microseconds before
// they sleep.
constexpr int kSpinsBeforeSleep = 1000;

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::this_thread::yield();
#endif
}

void pin_to(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  // If the system refuses, as a container may, only speed is lost.
  (void)pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
}

}  // namespace

ThreadPool::ThreadPool(int num_threads) {
  const int total = num_threads > 0 ? num_threads : num_physical_cores();
  const std::vector<int> cpus = spread_over_cores(allowed_cpus());
  for (int worker = 1; worker < total; ++worker) {
    workers_.emplace_back([this, worker] { work(worker); });
    if (static_cast<int>(cpus.size()) >= total) {
      pin_to(workers_.back(), cpus[static_cast<size_t>(worker)]);
    }
  }
}

ThreadPool::~ThreadPool() {
  stopping_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run(const Loop& loop) {
  loop_ = loop;
  num_done_.store(0, std::memory_order_relaxed);
  open_tasks_.store(loop.num_tasks, std::memory_order_release);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  drain(0);
  for (int spins = 0; num_done_.load(std::memory_order_acquire) != loop.num_tasks; ++spins) {
    if (spins < kSpinsBeforeSleep) {
      pause_cpu();
    } else {
      std::this_thread::yield();
    }
  }
}

void ThreadPool::drain(int worker) {
  int64_t num_done = 0;
  for (;;) {
    const int64_t open = open_tasks_.fetch_sub(1, std::memory_order_acquire);
    if (open <= 0) break;
    loop_.invoke(loop_.state, loop_.num_tasks - open, worker);
    ++num_done;
  }
  if (num_done > 0) num_done_.fetch_add(num_done, std::memory_order_release);
}

void ThreadPool::work(int worker) {
  uint32_t seen = 0;
  for (;;) {
    uint32_t now = generation_.load(std::memory_order_acquire);
    for (int spins = 0; now == seen && spins < kSpinsBeforeSleep; ++spins) {
      pause_cpu();
      now = generation_.load(std::memory_order_acquire);
    }
    while (now == seen) {
      generation_.wait(seen, std::memory_order_acquire);
      now = generation_.load(std::memory_order_acquire);
    }
    seen = now;
    if (stopping_.load(std::memory_order_relaxed)) return;
    drain(worker);
  }
}

}  // namespace heddle::device
