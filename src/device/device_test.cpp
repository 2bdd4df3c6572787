// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/cpu_device.h"
#include "device/cpu_topology.h"
#include "device/memory.h"
#include "device/thread_pool.h"

namespace heddle::device {
namespace {

using ::testing::ElementsAre;

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

// Many more threads than cores: most workers come to a loop when it or several after it are over.
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

TEST(CpuTopology, CountsTheMachinesCores) {
  const std::vector<LogicalCpu> cpus = allowed_cpus();
  ASSERT_FALSE(cpus.empty());
  EXPECT_GE(num_physical_cores(), 1);
  EXPECT_LE(num_physical_cores(), static_cast<int>(cpus.size()));
  EXPECT_TRUE(std::ranges::is_sorted(cpus, {}, &LogicalCpu::number));
  EXPECT_THAT(spread_over_cores(cpus), ::testing::SizeIs(cpus.size()));
}

TEST(CpuTopology, ThreadsTakeEveryCoreBeforeTheyShareOne) {
  using Cpus = std::vector<LogicalCpu>;
  const auto order = [](const Cpus& cpus) { return spread_over_cores(cpus); };
  EXPECT_THAT(order({}), ElementsAre());
  EXPECT_THAT(order({{4, 4}, {7, 7}}), ElementsAre(4, 7)) << "one thread a core";
  EXPECT_THAT(order({{0, 0}, {1, 0}, {2, 2}, {3, 2}}), ElementsAre(0, 2, 1, 3))
      << "hardware threads side by side";
  EXPECT_THAT(order({{0, 0}, {1, 1}, {2, 0}, {3, 1}}), ElementsAre(0, 1, 2, 3))
      << "all first ones, then all second ones";
  EXPECT_THAT(order({{1, 0}, {2, 2}, {3, 2}, {5, 5}}), ElementsAre(1, 2, 5, 3))
      << "cores of which not all may be used";
}

TEST(HostBuffer, IsZeroedAlignedAndMovable) {
  Result<HostBuffer> buffer = HostBuffer::allocate(5 << 20);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (2 << 20), 0u);
  for (int64_t i = 0; i < buffer->size(); i += 4096) EXPECT_EQ(buffer->data()[i], std::byte{0});
  buffer->data()[7] = std::byte{9};
  HostBuffer moved = std::move(*buffer);
  EXPECT_EQ(moved.data()[7], std::byte{9});
  EXPECT_EQ(buffer->data(), nullptr);
}

TEST(HostBuffer, RefusesWhatTheSystemCannotGive) {
  EXPECT_EQ(HostBuffer::allocate(-1).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(HostBuffer::allocate(int64_t{1} << 60).status().code(), StatusCode::kResourceExhausted);
  Result<HostBuffer> empty = HostBuffer::allocate(0);
  ASSERT_TRUE(empty.ok());
  EXPECT_EQ(empty->size(), 0);
}

TEST(CpuDevice, GivesZeroedMemoryAndCopiesWithinIt) {
  CpuDevice cpu(1);
  Result<Buffer> buffer = cpu.allocate(4096);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->data()[100], std::byte{0});
  Result<std::unique_ptr<Stream>> stream = cpu.create_stream();
  ASSERT_TRUE(stream.ok());
  const char text[] = "warp";
  ASSERT_TRUE((*stream)->copy(buffer->data() + 8, text, 4).ok());
  ASSERT_TRUE((*stream)->copy(buffer->data() + 10, buffer->data() + 8, 4).ok())
      << "overlapping is fine";
  ASSERT_TRUE((*stream)->zero(buffer->data() + 8, 1).ok());
  ASSERT_TRUE((*stream)->synchronize().ok());
  EXPECT_EQ(buffer->data()[8], std::byte{0});
  EXPECT_EQ(buffer->data()[13], std::byte{'p'});
}

TEST(CpuDevice, DiscardsWholeMemoryPagesOnly) {
  CpuDevice cpu(1);
  const int64_t page = host_page_bytes();
  Result<Buffer> buffer = cpu.allocate(4 * page);
  ASSERT_TRUE(buffer.ok());
  std::ranges::fill(buffer->bytes(), std::byte{7});
  Result<std::unique_ptr<Stream>> stream = cpu.create_stream();
  ASSERT_TRUE(stream.ok());
  ASSERT_TRUE((*stream)->discard(buffer->data() + page - 1, 2 * page).ok());
  EXPECT_EQ(buffer->data()[page - 1], std::byte{7});
  EXPECT_EQ(buffer->data()[page], std::byte{0}) << "taken back, and read anew";
  EXPECT_EQ(buffer->data()[2 * page - 1], std::byte{0});
  EXPECT_EQ(buffer->data()[2 * page], std::byte{7}) << "not a whole page of the range";
  ASSERT_TRUE((*stream)->discard(buffer->data() + 1, page).ok());
  ASSERT_TRUE((*stream)->discard(buffer->data(), 0).ok());
  EXPECT_EQ(buffer->data()[0], std::byte{7});
}

TEST(CpuDevice, TimesEventsAndSaysThatItCannotCapture) {
  CpuDevice cpu(1);
  EXPECT_FALSE(cpu.can_capture());
  EXPECT_EQ(cpu.release_granule_bytes(), host_page_bytes());
  ASSERT_TRUE(cpu.make_current().ok());
  std::unique_ptr<Stream> stream = std::move(cpu.create_stream()).value();
  const std::unique_ptr<Event> start = std::move(cpu.create_event()).value();
  const std::unique_ptr<Event> end = std::move(cpu.create_event()).value();
  ASSERT_TRUE(stream->record(*start).ok());
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
  ASSERT_TRUE(stream->record(*end).ok());
  EXPECT_TRUE(end->reached().value());
  ASSERT_TRUE(end->wait().ok());
  ASSERT_TRUE(stream->wait_for(*end).ok());
  const Result<double> seconds = end->seconds_since(*start);
  ASSERT_TRUE(seconds.ok());
  EXPECT_GE(*seconds, 0.002);
  ASSERT_TRUE(stream->record(*start).ok()) << "an event is used again";
  EXPECT_LE(end->seconds_since(*start).value(), 0.0);
  EXPECT_EQ(stream->begin_capture().code(), StatusCode::kUnimplemented);
  EXPECT_EQ(stream->end_capture().status().code(), StatusCode::kUnimplemented);
}

TEST(CpuDevice, NamesWhatItCannotAllocate) {
  CpuDevice cpu(1);
  EXPECT_EQ(cpu.allocate(int64_t{1} << 60).status().code(), StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace heddle::device
