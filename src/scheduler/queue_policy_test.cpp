// SPDX-License-Identifier: Apache-2.0
#include "scheduler/queue_policy.h"

#include <cmath>
#include <functional>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/queue_order.h"

namespace heddle::scheduler {
namespace {

using ::testing::HasSubstr;

QueuePolicyChoice chosen(const SchedulingOptions& options, bool prefix_cache_enabled = true) {
  return choose_queue_policy(options, prefix_cache_enabled).value();
}

SchedulingOptions with(const char* policy, bool enable_priority) {
  SchedulingOptions options;
  options.policy = parse_queue_policy(policy).value();
  options.enable_priority = enable_priority;
  return options;
}

TEST(QueuePolicyTest, ReadsEveryName) {
  for (const char* name : {"fcfs", "lpm", "dfs-weight", "lof", "random", "routing-key", "hrrn",
                           "shortest-prefill-first", "fair"}) {
    EXPECT_EQ(to_string(chosen(with(name, false)).policy), name);
    EXPECT_FALSE(chosen(with(name, false)).by_priority);
  }
}

TEST(QueuePolicyTest, PriorityIsFcfsWithPriorities) {
  EXPECT_EQ(chosen(with("priority", false)).policy, QueuePolicy::kFcfs);
  EXPECT_TRUE(chosen(with("priority", false)).by_priority);
}

TEST(QueuePolicyTest, PrioritiesCombineWithFcfsLofAndFairOnly) {
  for (const char* name : {"fcfs", "lof", "fair"}) {
    EXPECT_TRUE(chosen(with(name, true)).by_priority) << name;
  }
  for (const char* name :
       {"lpm", "dfs-weight", "random", "routing-key", "hrrn", "shortest-prefill-first"}) {
    const auto choice = choose_queue_policy(with(name, true), true);
    ASSERT_FALSE(choice.ok()) << name;
    EXPECT_EQ(choice.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(choice.status().message(), HasSubstr("fcfs, lof and fair"));
    EXPECT_THAT(choice.status().message(), HasSubstr(name));
    EXPECT_FALSE(choose_queue_policy(with(name, true), false).ok()) << "also without the cache";
  }
}

TEST(QueuePolicyTest, CacheAwarePoliciesAreFcfsWithoutTheCache) {
  for (const char* name : {"lpm", "dfs-weight", "hrrn", "shortest-prefill-first"}) {
    EXPECT_EQ(chosen(with(name, false), false).policy, QueuePolicy::kFcfs) << name;
    EXPECT_TRUE(chosen(with(name, false), false).replaced_without_cache) << name;
    EXPECT_FALSE(chosen(with(name, false), true).replaced_without_cache) << name;
  }
  EXPECT_EQ(chosen(with("fair", false), false).policy, QueuePolicy::kFair);
  EXPECT_FALSE(chosen(with("lof", false), false).replaced_without_cache);
}

TEST(QueuePolicyTest, AnUnknownNameIsAnErrorThatListsTheNames) {
  const auto policy = parse_queue_policy("fifo");
  ASSERT_FALSE(policy.ok());
  EXPECT_EQ(policy.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      policy.status().message(),
      HasSubstr("policy = \"fifo\" does not exist; choose one of fcfs, lpm, dfs-weight, lof, "
                "random, routing-key, hrrn, shortest-prefill-first, fair, priority"));
}

TEST(QueuePolicyTest, RefusesNumbersOutOfRange) {
  const auto refused = [](const std::function<void(SchedulingOptions&)>& spoil, const char* name) {
    SchedulingOptions options;
    spoil(options);
    const auto choice = choose_queue_policy(options, true);
    EXPECT_FALSE(choice.ok()) << name;
    if (!choice.ok()) {
      EXPECT_THAT(choice.status().message(), HasSubstr(name));
    }
  };
  refused([](auto& o) { o.conservativeness = 0; }, "conservativeness = 0");
  refused([](auto& o) { o.conservativeness = std::nan(""); }, "conservativeness = nan");
  refused([](auto& o) { o.prefills_per_decode = -1; }, "prefills_per_decode = -1");
  refused([](auto& o) { o.target_itl_ms = -1; }, "target_itl_ms = -1");
  refused([](auto& o) { o.max_prefill_tokens = 0; }, "max_prefill_tokens = 0");
  refused([](auto& o) { o.preemption_threshold = -1; }, "preemption_threshold");
  refused([](auto& o) { o.max_preemptions = -1; }, "max_preemptions");
  refused([](auto& o) { o.preemption_min_run_seconds = -1; }, "preemption_min_run_seconds");
  refused([](auto& o) { o.aging_seconds = std::nan(""); }, "aging_seconds = nan");
  refused(
      [](auto& o) {
        o.enable_priority = true;
        o.aging_seconds = 1;
      },
      "aging_seconds = 1 needs a default_priority");
  refused([](auto& o) { o.cache_aware_max_wait_seconds = -1; }, "cache_aware_max_wait_seconds");
  refused([](auto& o) { o.max_queued_tokens = -1; }, "max_queued_tokens");
  refused([](auto& o) { o.queue_timeout_seconds = -1; }, "queue_timeout_seconds");
  refused([](auto& o) { o.running_timeout_seconds = -1; }, "running_timeout_seconds");
  refused([](auto& o) { o.fair_cost_input = -1; }, "fair_cost_input");
  refused([](auto& o) { o.fair_cost_output = -1; }, "fair_cost_output");
  refused([](auto& o) { o.fair_cost_cached = -1; }, "fair_cost_cached");
  refused([](auto& o) { o.tenant_max_running = -1; }, "tenant_max_running");
  refused([](auto& o) { o.tenant_max_queued = -1; }, "tenant_max_queued");
  EXPECT_TRUE(choose_queue_policy(SchedulingOptions{}, true).ok());
}

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

TEST(PrioritiesTest, UrgencyFollowsPriorityItsDefaultAndItsDirection) {
  EXPECT_EQ(urgency_of(7, {}), 0) << "off: all are equal";
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

TEST(PrioritiesTest, AWaitingRequestReachesTheTopClassWithTime) {
  const auto first_at = [](double now) {
    std::vector<QueueEntry> entries = {{.arrival = 0, .urgency = aged_urgency(0, now, 30, 10)}};
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

TEST(PrioritiesTest, AgingNeverPassesTheTopClassNorLowersAny) {
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
