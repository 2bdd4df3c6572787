// SPDX-License-Identifier: Apache-2.0
#include "device/thread_pool.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace heddle::device {
namespace {

TEST(ThreadPool, RunsEveryTaskExactlyOnce) {
  for (const int num_threads : {1, 2, 3, 8}) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (const int64_t num_tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(num_tasks));
      pool.parallel_for(num_tasks, [&](int64_t task, int worker) {
        EXPECT_GE(worker, 0);
        EXPECT_LT(worker, num_threads);
        runs[static_cast<size_t>(task)].fetch_add(1);
      });
      for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
    }
  }
}

TEST(ThreadPool, MakesWritesOfTasksVisibleToTheCallerAndToTheNextLoop) {
  ThreadPool pool(4);
  std::vector<int64_t> values(256, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.parallel_for(
        256, [&](int64_t task, int) { ++values[static_cast<size_t>((task + round) % 256)]; });
  }
  for (const int64_t value : values) EXPECT_EQ(value, 2000);
}

TEST(ThreadPool, WakesWorkersThatHaveGoneToSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int64_t> sum{0};
    pool.parallel_for(100, [&](int64_t task, int) { sum.fetch_add(task); });
    EXPECT_EQ(sum.load(), 4950);
  }
}

TEST(ThreadPool, RunsEveryTaskExactlyOnceWhenWorkersMissLoops) {
  ThreadPool pool(16);
  std::vector<int64_t> runs(37, 0);
  std::vector<int64_t> expected(37, 0);
  for (int round = 0; round < 5000; ++round) {
    const auto num_tasks = static_cast<size_t>(2 + round % 36);
    pool.parallel_for(static_cast<int64_t>(num_tasks),
                      [&](int64_t task, int) { ++runs[static_cast<size_t>(task)]; });
    for (size_t task = 0; task < num_tasks; ++task) ++expected[task];
    ASSERT_EQ(runs, expected) << "round " << round;
  }
}

}  // namespace
}  // namespace heddle::device
