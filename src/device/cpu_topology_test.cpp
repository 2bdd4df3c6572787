// SPDX-License-Identifier: Apache-2.0
#include "device/cpu_topology.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "device/thread_pool.h"

namespace heddle::device {
namespace {

using ::testing::ElementsAre;

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

TEST(CpuTopology, GroupsOfThreadsTakeDifferentCpus) {
  const std::vector<int> order = {0, 2, 4, 6, 1, 3};
  EXPECT_THAT(cpu_group(order, 0, 2), ElementsAre(0, 2));
  EXPECT_THAT(cpu_group(order, 2, 3), ElementsAre(4, 6, 1));
  EXPECT_THAT(cpu_group(order, 4, 3), ElementsAre()) << "not enough CPUs";
}

TEST(CpuTopology, ThreadsThatAreCreatedInAScopeUseItsCpusAlone) {
  const std::vector<LogicalCpu> before = allowed_cpus();
  const int last = before.back().number;
  {
    const CpuScope scope({last});
    ThreadPool pool(3);
    std::atomic<int> others{0};
    pool.parallel_for(100, [&](int64_t, int) {
      for (const LogicalCpu& cpu : allowed_cpus()) others += cpu.number == last ? 0 : 1;
    });
    EXPECT_EQ(others, 0);
  }
  EXPECT_EQ(allowed_cpus().size(), before.size());
  const CpuScope nowhere({});
  EXPECT_EQ(allowed_cpus().size(), before.size());
}

}  // namespace
}  // namespace heddle::device
