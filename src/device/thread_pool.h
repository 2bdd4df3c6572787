// SPDX-License-Identifier: Apache-2.0
// ThreadPool: the compute threads of the CPU device. A parallel_for hands out task indices one by
// one. The calling thread takes part, so a pool of one thread runs everything inline.
//
// The caller waits for tasks, not for threads: if the system keeps a worker off its core because
// another program uses it, the other threads do its part of the loop.
//
// After a loop workers spin for some tens of microseconds, because the next loop of a step usually
// follows at once, and then sleep until there is work: an idle server uses no CPU.
//
// Threading: parallel_for may be called by one thread at a time, and not from inside a task. Cost:
// one to two microseconds per loop while the workers are awake.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace heddle::device {

class ThreadPool {
 public:
  // `num_threads` includes the caller; 0 means num_physical_cores(). Each worker is pinned to one
  // CPU if there are as many CPUs as threads. Two share a core only if all cores are in use
  // (cpu_topology.h).
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  [[nodiscard]] int num_threads() const { return static_cast<int>(workers_.size()) + 1; }

  // Runs body(task, worker) for every task in [0, num_tasks), with worker in [0, num_threads()),
  // and waits. Which worker runs a task is not defined, so results must not depend on it.
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
  // Written only while no task is open. A thread that has claimed a task may read it until that
  // task is counted as done.
  Loop loop_;
  // Number of unclaimed tasks. A thread that decrements a positive value has claimed a task of
  // loop_, however late it does so; at zero or below nothing is left.
  alignas(64) std::atomic<int64_t> open_tasks_{0};
  alignas(64) std::atomic<uint32_t> generation_{0};  // incremented once per loop; workers wait for
                                                     // a change
  alignas(64) std::atomic<int64_t> num_done_{0};     // number of tasks of this loop that are done
  std::atomic<bool> stopping_{false};
};

}  // namespace heddle::device
