// SPDX-License-Identifier: Apache-2.0
#include "scheduler/priorities.h"

#include <limits>

#include <gtest/gtest.h>

#include "scheduler/queue_order.h"

namespace heddle::scheduler {
namespace {

constexpr int64_t kLowest = std::numeric_limits<int64_t>::min();
constexpr int64_t kHighest = std::numeric_limits<int64_t>::max();

TEST(PrioritiesTest, SumsAndDifferencesSaturate) {
  EXPECT_EQ(saturating_add(3, 4), 7);
  EXPECT_EQ(saturating_add(kHighest, 1), kHighest);
  EXPECT_EQ(saturating_add(kLowest, -1), kLowest);
  EXPECT_EQ(saturating_subtract(3, 4), -1);
  EXPECT_EQ(saturating_subtract(5, kLowest), kHighest);
  EXPECT_EQ(saturating_subtract(-5, kHighest), kLowest);
  EXPECT_EQ(saturating_subtract(0, kLowest), kHighest);
  EXPECT_EQ(saturating_subtract(kLowest, kLowest), 0);
}

TEST(PrioritiesTest, SchedulerSpec4Defaults) {
  EXPECT_EQ(urgency_of(7, {}), 0) << "off: everybody is equal";
  EXPECT_EQ(urgency_of(std::nullopt, {.default_priority = 3}), 0);
  EXPECT_EQ(urgency_of(7, {.enabled = true}), 7);
  EXPECT_EQ(urgency_of(std::nullopt, {.enabled = true}), kLowest);
  EXPECT_EQ(urgency_of(7, {.enabled = true, .low_values_first = true}), -7);
  EXPECT_EQ(urgency_of(std::nullopt, {.enabled = true, .low_values_first = true}), kLowest);
  EXPECT_EQ(urgency_of(std::nullopt, {.enabled = true, .default_priority = 2}), 2);
  EXPECT_EQ(
      urgency_of(std::nullopt, {.enabled = true, .low_values_first = true, .default_priority = 2}),
      -2);
  EXPECT_EQ(urgency_of(kLowest, {.enabled = true, .low_values_first = true}), kHighest);
}

TEST(PrioritiesTest, SchedulerSpec141Aging) {
  const auto first_at = [](double now) {
    std::vector<Waiting> entries = {{.arrival = 0, .urgency = aged_urgency(0, now, 30, 10)}};
    for (double arrived = 1; arrived < now; ++arrived) {
      entries.push_back({.arrival = static_cast<int64_t>(arrived),
                         .urgency = aged_urgency(10, now - arrived, 30, 10)});
    }
    QueueOrder({.by_priority = true}).order(entries, {});
    return std::pair(entries.front().arrival, entries.back().arrival);
  };
  EXPECT_EQ(aged_urgency(0, 299, 30, 10), 9);
  EXPECT_EQ(first_at(299).second, 0) << "last";
  EXPECT_EQ(aged_urgency(0, 300, 30, 10), 10);
  EXPECT_EQ(first_at(300).first, 0);
}

TEST(PrioritiesTest, AgingNeverPassesTheTopClassNorLowersAnybody) {
  EXPECT_EQ(aged_urgency(5, 1e9, 30, 10), 10);
  EXPECT_EQ(aged_urgency(10, 1e9, 30, 10), 10);
  EXPECT_EQ(aged_urgency(12, 1e9, 30, 10), 12);
  EXPECT_EQ(aged_urgency(5, 29.9, 30, 10), 5);
  EXPECT_EQ(aged_urgency(5, 1e9, 0, 10), 5) << "0: never";
  EXPECT_EQ(aged_urgency(kLowest, 60, 30, kHighest), kLowest + 2);
  EXPECT_EQ(aged_urgency(0, 1e300, 1e-300, kHighest), int64_t{1} << 62);
}

}  // namespace
}  // namespace heddle::scheduler
