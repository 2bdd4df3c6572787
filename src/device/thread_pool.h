// SPDX-License-Identifier: Apache-2.0
// ThreadPool: the CPU device's compute threads. A parallel_for hands out task indices one by one;
// the caller takes part, so a pool of one thread runs everything inline.
//
// The caller waits for tasks, not for threads: a worker that the system keeps off its core (another
// program has it) misses the loop, and the others do its part.
//
// Workers spin for some tens of microseconds after a loop (the next one of a step usually follows
// at once) and then sleep until there is work again: an idle server uses no CPU.
//
// Threading: parallel_for may be called from one thread at a time, not from inside a task.
// Cost: one to two microseconds a loop while the workers are awake.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace heddle::device {

class ThreadPool {
 public:
  // `num_threads` counts the caller; 0 means num_physical_cores(). Workers are pinned to one CPU
  // each when there are as many CPUs as threads, and two share a core only when all cores are taken
  // (cpu_topology.h).
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs body(task, worker) for every task in [0, num_tasks), worker in [0, num_threads()), and
  // waits. Which worker runs a task is not defined: results must not depend on it.
  template <typename Body>
  void parallel_for(int64_t num_tasks, Body&& body) {
    if (num_tasks <= 0) return;
    if (workers_.empty() || num_tasks == 1) {
      for (int64_t task = 0; task < num_tasks; ++task) body(task, 0);
      return;
    }
    using Plain = std::remove_reference_t<Body>;
    run({.invoke = [](void* state, int64_t task,
                      int worker) { (*static_cast<Plain*>(state))(task, worker); },
         .state = const_cast<void*>(static_cast<const void*>(&body)),
         .num_tasks = num_tasks});
  }

 private:
  struct Loop {
    void (*invoke)(void* state, int64_t task, int worker) = nullptr;
    void* state = nullptr;
    int64_t num_tasks = 0;
  };

  void run(const Loop& loop);
  void work(int worker);
  void drain(int worker);

  std::vector<std::thread> workers_;
  // Written while no task is open; a thread that has claimed one may read it until that is counted.
  Loop loop_;
  // Unclaimed tasks. A thread that takes one off while some are left has claimed a task of loop_,
  // however late it comes; below zero nothing is left.
  alignas(64) std::atomic<int64_t> open_tasks_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};  // raised once per loop; workers wait on it
  alignas(64) std::atomic<int64_t> num_done_{0};     // tasks of this loop that have been run
  std::atomic<bool> stopping_{false};
};

}  // namespace heddle::device
