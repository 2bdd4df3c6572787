// SPDX-License-Identifier: Apache-2.0
#include "scheduler/fair_share.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "scheduler/queue_order.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Job {
  std::string name;
  int32_t tenant = 0;
  int64_t arrival = 0;
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
};

// A server with `num_slots` slots; each pass admits what fits, then draws one token for all.
class TinyServer {
 public:
  TinyServer(FairShare& fair, size_t num_slots) : fair_(fair), num_slots_(num_slots) {}

  void arrive(std::string name, int32_t tenant, int64_t prompt_tokens, int64_t output_tokens) {
    fair_.arrive(tenant);
    waiting_.push_back({std::move(name), tenant, next_arrival_++, prompt_tokens, output_tokens});
  }

  // False when nothing is left.
  bool pass() {
    std::vector<QueueEntry> entries;
    for (const Job& job : waiting_) {
      entries.push_back(
          {.arrival = job.arrival, .uncached_tokens = job.prompt_tokens, .tenant = job.tenant});
    }
    QueueOrder({.policy = QueuePolicy::kFair}).order(entries, {.fair = &fair_});
    for (const QueueEntry& entry : entries) {
      if (running_.size() == num_slots_) break;
      const auto job = std::find_if(waiting_.begin(), waiting_.end(), [&](const Job& candidate) {
        return candidate.arrival == entry.arrival;
      });
      fair_.admit(job->tenant, job->prompt_tokens, 0, false);
      started_.push_back(job->name);
      running_.push_back(*job);
      waiting_.erase(job);
    }
    for (Job& job : running_) {
      fair_.charge_output(job.tenant, 1);
      if (--job.output_tokens == 0) fair_.leave_running(job.tenant);
    }
    std::erase_if(running_, [](const Job& job) { return job.output_tokens == 0; });
    return !waiting_.empty() || !running_.empty();
  }

  [[nodiscard]] const std::vector<std::string>& started() const { return started_; }

  [[nodiscard]] int64_t num_waiting(int32_t tenant) const {
    return std::count_if(waiting_.begin(), waiting_.end(),
                         [tenant](const Job& job) { return job.tenant == tenant; });
  }

 private:
  FairShare& fair_;
  size_t num_slots_;
  int64_t next_arrival_ = 0;
  std::vector<Job> waiting_;
  std::vector<Job> running_;
  std::vector<std::string> started_;
};

TEST(FairShareTest, TheTenantThatGotLeastIsServedNext) {
  FairShare fair({});
  const int32_t a = fair.tenant("A");
  const int32_t b = fair.tenant("B");
  TinyServer server(fair, 1);
  for (int i = 1; i <= 4; ++i) server.arrive(fmt::format("A{}", i), a, 100, 100);
  for (int i = 1; i <= 4; ++i) server.arrive(fmt::format("B{}", i), b, 50, 25);
  while (server.pass()) {
  }
  EXPECT_THAT(server.started(), ElementsAre("A1", "B1", "B2", "B3", "A2", "B4", "A3", "A4"));
  EXPECT_EQ(fair.counter(a), 1200);
  EXPECT_EQ(fair.counter(b), 400);
}

TEST(FairShareTest, ATenantOfTwiceTheWeightGetsTwiceTheShare) {
  FairShare fair({});
  const int32_t a = fair.tenant("A");
  const int32_t b = fair.tenant("B");
  fair.set_terms(b, {.weight = 2});
  TinyServer server(fair, 1);
  for (int i = 1; i <= 3; ++i) server.arrive(fmt::format("A{}", i), a, 100, 1);
  for (int i = 1; i <= 6; ++i) server.arrive(fmt::format("B{}", i), b, 100, 1);
  while (server.pass()) {
  }
  EXPECT_THAT(server.started(), ElementsAre("A1", "B1", "B2", "A2", "B3", "B4", "A3", "B5", "B6"));
  EXPECT_EQ(fair.counter(a), 306);
  EXPECT_EQ(fair.counter(b), 306);
}

TEST(FairShareTest, ATenantMayHaveLimitsOfItsOwn) {
  FairShare fair({.max_running = 1, .max_queued = 1});
  const TenantTerms more{.max_running = 2, .max_queued = 3};
  EXPECT_FALSE(fair.check_queue("A", 3, 0).ok());
  EXPECT_TRUE(fair.check_queue("A", 3, 0, more).ok());
  EXPECT_EQ(fair.max_at_once(8), 2);
  EXPECT_EQ(fair.max_at_once(8, more), 5);
  const int32_t a = fair.tenant("A");
  fair.set_terms(a, more);
  fair.arrive(a);
  fair.admit(a, 1, 0, false);
  EXPECT_TRUE(fair.may_run(a));
  fair.set_terms(a, {});
  EXPECT_FALSE(fair.may_run(a));
}

TEST(FairShareTest, ANewTenantBeginsAtTheLeastCounterOfThoseWaiting) {
  FairShare fair({});
  const int32_t a = fair.tenant("A");
  TinyServer server(fair, 1);
  for (int i = 1; i <= 5; ++i) server.arrive(fmt::format("A{}", i), a, 100, 100);
  for (int pass = 0; pass < 300; ++pass) server.pass();
  ASSERT_EQ(fair.counter(a), 900);
  ASSERT_EQ(server.num_waiting(a), 2);
  const int32_t b = fair.tenant("B");
  server.arrive("B1", b, 10, 10);
  EXPECT_EQ(fair.counter(b), 900);
}

TEST(FairShareTest, WithNoneWaitingTheLiftIsToTheTenantThatWaitedLast) {
  FairShare fair({});
  const int32_t a = fair.tenant("A");
  fair.arrive(a);
  fair.admit(a, 100, 0, false);
  fair.charge_output(a, 100);
  const int32_t b = fair.tenant("B");
  fair.arrive(b);
  EXPECT_EQ(fair.counter(b), 300) << "what it is now, not when A stopped waiting";
}

TEST(FairShareTest, TheLiftNeverLowersACounter) {
  FairShare fair({});
  const int32_t a = fair.tenant("A");
  const int32_t b = fair.tenant("B");
  fair.arrive(a);
  fair.admit(a, 500, 0, false);
  fair.arrive(b);
  ASSERT_EQ(fair.counter(b), 500);
  fair.charge_output(a, 10);
  fair.arrive(a);
  EXPECT_EQ(fair.counter(a), 520);
}

TEST(FairShareTest, RetractionRefundsNothingAndChargesNothingAgain) {
  FairShare fair({});
  const int32_t a = fair.tenant("A");
  fair.arrive(a);
  fair.admit(a, 100, 50, false);
  fair.charge_output(a, 10);
  EXPECT_DOUBLE_EQ(fair.counter(a), 100 + 5 + 20);
  fair.give_back(a);
  EXPECT_DOUBLE_EQ(fair.counter(a), 125);
  fair.admit(a, 160, 0, true);
  EXPECT_DOUBLE_EQ(fair.counter(a), 125);
}

TEST(FairShareTest, CostsComeFromTheOptions) {
  SchedulingOptions options;
  options.fair_cost_input = 3;
  options.fair_cost_output = 5;
  options.fair_cost_cached = 0.5;
  FairShare fair(FairShareOptions::from(options));
  const int32_t a = fair.tenant("A");
  fair.arrive(a);
  fair.admit(a, 10, 4, false);
  fair.charge_output(a, 2);
  EXPECT_DOUBLE_EQ(fair.counter(a), 30 + 2 + 10);
}

TEST(FairShareTest, OnePassAlternatesThoughCountersMoveAtAdmissionOnly) {
  FairShare fair({});
  const int32_t a = fair.tenant("A");
  const int32_t b = fair.tenant("B");
  std::vector<QueueEntry> entries;
  for (int64_t i = 0; i < 3; ++i) {
    fair.arrive(a);
    entries.push_back({.arrival = i, .uncached_tokens = 100, .tenant = a});
  }
  for (int64_t i = 3; i < 6; ++i) {
    fair.arrive(b);
    entries.push_back({.arrival = i, .uncached_tokens = 100, .tenant = b});
  }
  FairShare::OrderScratch scratch;
  fair.begin_order(scratch);
  fair.order(entries, scratch);
  std::vector<int64_t> order;
  for (const QueueEntry& entry : entries) order.push_back(entry.arrival);
  EXPECT_THAT(order, ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_EQ(fair.counter(a), 0);
}

TEST(FairShareTest, QueueCapsCountWhatNeverRan) {
  FairShare fair({.max_queued = 2});
  const int32_t a = fair.tenant("A");
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(fair.check_queue("A", 1, 0).ok());
    fair.arrive(a);
  }
  EXPECT_EQ(fair.check_queue("A", 1, 0).code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(fair.check_queue("A", 1, 0).message(),
              HasSubstr("tenant \"A\" has 2 requests waiting, tenant_max_queued = 2"));
  EXPECT_TRUE(fair.check_queue("B", 1, 0).ok()) << "for that tenant only";
  fair.admit(a, 1, 0, false);
  EXPECT_TRUE(fair.check_queue("A", 1, 0).ok());
  fair.give_back(a);
  EXPECT_TRUE(fair.check_queue("A", 1, 0).ok()) << "returned ones do not count";
  fair.arrive(a);
  fair.leave_waiting(a, true);
  EXPECT_FALSE(fair.check_queue("A", 1, 0).ok());
  fair.leave_waiting(a, false);
  EXPECT_TRUE(fair.check_queue("A", 1, 0).ok());
}

TEST(FairShareTest, QueueCapsCountWholeCallsLessThoseThatGetABatchSlot) {
  FairShare fair({.max_running = 3, .max_queued = 2});
  EXPECT_EQ(fair.max_at_once(8), 5);
  EXPECT_EQ(fair.max_at_once(1), 3);
  EXPECT_TRUE(fair.check_queue("A", 5, 8).ok()) << "three run at once";
  EXPECT_FALSE(fair.check_queue("A", 6, 8).ok());
  EXPECT_TRUE(fair.check_queue("A", 3, 1).ok());
  EXPECT_THAT(fair.check_queue("A", 4, 1).message(),
              HasSubstr("has 0 requests waiting and 4 came at once, tenant_max_queued = 2"));

  const int32_t b = fair.tenant("B");
  for (int i = 0; i < 9; ++i) fair.arrive(b);
  EXPECT_TRUE(fair.check_queue("A", 4, 5).ok()) << "three of the rows are B's";
  EXPECT_FALSE(fair.check_queue("A", 5, 5).ok());
  for (int i = 0; i < 3; ++i) fair.admit(b, 1, 0, false);
  EXPECT_TRUE(fair.check_queue("A", 5, 5).ok()) << "and no more than three, whichever wait";

  const int32_t a = fair.tenant("A");
  fair.arrive(a);
  fair.admit(a, 1, 0, false);
  fair.give_back(a);
  EXPECT_TRUE(fair.check_queue("A", 4, 3).ok()) << "one of the rows is its own that comes back";
  EXPECT_FALSE(fair.check_queue("A", 5, 3).ok());
}

TEST(FairShareTest, RunningCapsAreForThatTenantOnly) {
  FairShare fair({.max_running = 1});
  const int32_t a = fair.tenant("A");
  const int32_t b = fair.tenant("B");
  fair.arrive(a);
  EXPECT_TRUE(fair.may_run(a));
  fair.admit(a, 1, 0, false);
  EXPECT_FALSE(fair.may_run(a));
  EXPECT_TRUE(fair.may_run(b));
  fair.leave_running(a);
  EXPECT_TRUE(fair.may_run(a));
  FairShare unlimited({});
  EXPECT_TRUE(unlimited.may_run(unlimited.tenant("x")));
}

TEST(FairShareTest, ForgetsIdleTenantsAndKeepsBusyOnes) {
  FairShare fair({});
  const int32_t busy = fair.tenant("busy");
  fair.arrive(busy);
  const int32_t rich = fair.tenant("rich");
  fair.arrive(rich);
  fair.admit(rich, 1000000, 0, false);
  fair.leave_running(rich);
  int32_t highest = 0;
  for (int i = 0; i < 5000; ++i) highest = std::max(highest, fair.tenant(fmt::format("t{}", i)));
  EXPECT_LT(highest, static_cast<int32_t>(kMaxKnownTenants));
  EXPECT_EQ(fair.tenant("busy"), busy);
  EXPECT_EQ(fair.tenant("rich"), rich) << "the smallest counters are forgotten first";
  EXPECT_EQ(fair.counter(rich), 1000000);
}

TEST(FairShareTest, TheTenantThatWaitedLastIsNotForgotten) {
  FairShare fair({});
  const int32_t last = fair.tenant("last");
  fair.arrive(last);
  for (size_t i = 1; i < kMaxKnownTenants; ++i) {
    const int32_t other = fair.tenant(fmt::format("t{}", i));
    fair.arrive(other);
    fair.admit(other, 10, 0, false);
    fair.leave_running(other);
  }
  fair.leave_waiting(last, false);
  const int32_t newcomer = fair.tenant("newcomer");
  EXPECT_NE(newcomer, last) << "though its counter is the smallest";
  EXPECT_EQ(fair.tenant("last"), last);
}

TEST(FairShareTest, BusyTenantsAreNeverForgotten) {
  FairShare fair({});
  std::vector<int32_t> numbers;
  for (size_t i = 0; i < kMaxKnownTenants + 50; ++i) {
    numbers.push_back(fair.tenant(fmt::format("t{}", i)));
    fair.arrive(numbers.back());
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(fair.tenant(fmt::format("t{}", i)), numbers[i]);
  }
}

// Two tenants that always have requests waiting, one with long requests and many of them. The bound
// is the paper's: 2 * max(cost_input * longest prompt, cost_output * tokens that run at a time).
TEST(FairShareTest, BackloggedTenantsStayWithinTheBound) {
  constexpr size_t kSlots = 8;
  constexpr int64_t kLongestPrompt = 900;
  constexpr int64_t kLongestOutput = 120;
  const double bound = 2 * std::max<double>(kLongestPrompt, 2.0 * static_cast<double>(kSlots) *
                                                                (kLongestPrompt + kLongestOutput));
  for (uint32_t seed = 0; seed < 5; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int64_t low, int64_t high) {
      return std::uniform_int_distribution<int64_t>(low, high)(random);
    };
    FairShare fair({});
    const int32_t heavy = fair.tenant("heavy");
    const int32_t light = fair.tenant("light");
    TinyServer server(fair, kSlots);
    double widest = 0;
    for (int pass = 0; pass < 4000; ++pass) {
      while (server.num_waiting(heavy) < 20) {
        server.arrive("h", heavy, pick(500, kLongestPrompt), pick(50, kLongestOutput));
      }
      while (server.num_waiting(light) < 2) server.arrive("l", light, pick(1, 50), pick(1, 20));
      server.pass();
      widest = std::max(widest, std::abs(fair.counter(heavy) - fair.counter(light)));
    }
    EXPECT_GT(fair.counter(heavy), 8 * bound / 2) << "long enough for an unfair one to drift";
    EXPECT_LE(widest, bound) << "seed = " << seed;
    EXPECT_GT(widest, 0);
  }
}

}  // namespace
}  // namespace heddle::scheduler
