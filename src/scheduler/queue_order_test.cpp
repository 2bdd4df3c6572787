// SPDX-License-Identifier: Apache-2.0
#include "scheduler/queue_order.h"

#include <algorithm>
#include <array>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/allocation_count.h"

namespace heddle::scheduler {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr std::array kAllPolicies = {QueuePolicy::kFcfs,      QueuePolicy::kLpm,
                                     QueuePolicy::kDfsWeight, QueuePolicy::kLof,
                                     QueuePolicy::kRandom,    QueuePolicy::kRoutingKey,
                                     QueuePolicy::kHrrn,      QueuePolicy::kShortestPrefillFirst,
                                     QueuePolicy::kFair};

// A tree given by (node, parent) numbers; node 0 is the root, which the policies know as null.
class NumberedTree final : public PrefixShape {
 public:
  explicit NumberedTree(std::vector<int32_t> parents) : parents_(std::move(parents)) {}

  [[nodiscard]] const void* node(size_t number) const {
    return number == 0 ? nullptr : &parents_[number];
  }

  [[nodiscard]] const void* parent(const void* node_key) const override {
    return node(static_cast<size_t>(*static_cast<const int32_t*>(node_key)));
  }

 private:
  std::vector<int32_t> parents_;
};

std::vector<int64_t> ordered(const QueueOrderOptions& options, std::vector<QueueEntry> entries,
                             const QueueOrderInputs& inputs = {}) {
  QueueOrder(options).order(entries, inputs);
  std::vector<int64_t> arrivals;
  for (const QueueEntry& entry : entries) arrivals.push_back(entry.arrival);
  return arrivals;
}

TEST(QueueOrderTest, LongestMatchFirst) {
  EXPECT_THAT(ordered({.policy = QueuePolicy::kLpm},
                      {{.arrival = 1, .matched_tokens = 0},
                       {.arrival = 2, .matched_tokens = 100},
                       {.arrival = 3, .matched_tokens = 100},
                       {.arrival = 4, .matched_tokens = 50, .deprioritized = true}}),
              ElementsAre(2, 3, 1, 4));
}

TEST(QueueOrderTest, LongestOutputFirst) {
  const std::vector<QueueEntry> entries = {{.arrival = 1, .urgency = 5, .max_new_tokens = 64},
                                           {.arrival = 2, .urgency = 1, .max_new_tokens = 512},
                                           {.arrival = 3, .urgency = 1, .max_new_tokens = 512}};
  EXPECT_THAT(ordered({.policy = QueuePolicy::kLof}, entries), ElementsAre(2, 3, 1));
  EXPECT_THAT(ordered({.policy = QueuePolicy::kLof, .by_priority = true}, entries),
              ElementsAre(1, 2, 3));
}

TEST(QueueOrderTest, MoreThan128WaitingAreServedAsTheyCame) {
  for (const QueuePolicy policy : {QueuePolicy::kLpm, QueuePolicy::kHrrn}) {
    std::vector<QueueEntry> entries;
    std::vector<int64_t> arrivals;
    for (int64_t i = 0; i < 128; ++i) {
      entries.push_back(
          {.arrival = i, .matched_tokens = i, .uncached_tokens = 1, .engine_prefilled = i});
      arrivals.push_back(i);
    }
    EXPECT_TRUE(reads_matches(policy, 128));
    EXPECT_EQ(ordered({.policy = policy}, entries).front(), 127) << to_string(policy);
    entries.push_back(
        {.arrival = 128, .matched_tokens = 500, .uncached_tokens = 1, .engine_prefilled = 500});
    arrivals.push_back(128);
    EXPECT_FALSE(reads_matches(policy, 129));
    EXPECT_THAT(ordered({.policy = policy}, entries), ElementsAreArray(arrivals));
  }
}

TEST(QueueOrderTest, GroupsByWeightInTheTree) {
  const NumberedTree tree({0, 0, 1, 0});  // X = 1, its child Y = 2, Z = 3
  std::vector<QueueEntry> entries;
  const auto add = [&](int64_t arrival, size_t node) {
    entries.push_back({.arrival = arrival, .match_node = tree.node(node)});
  };
  add(0, 0);
  for (const int64_t arrival : {1, 2, 3, 4}) add(arrival, 3);
  for (const int64_t arrival : {5, 6}) add(arrival, 1);
  for (const int64_t arrival : {7, 8, 9}) add(arrival, 2);
  EXPECT_THAT(ordered({.policy = QueuePolicy::kDfsWeight}, entries, {.shape = &tree}),
              ElementsAre(7, 8, 9, 5, 6, 1, 2, 3, 4, 0));
}

TEST(QueueOrderTest, TreeSiblingsOfEqualWeightFollowTheirOldestRequest) {
  const NumberedTree tree({0, 0, 0, 2});
  EXPECT_THAT(ordered({.policy = QueuePolicy::kDfsWeight},
                      {{.arrival = 5, .match_node = tree.node(1)},
                       {.arrival = 9, .match_node = tree.node(2)},
                       {.arrival = 7, .match_node = tree.node(1)},
                       {.arrival = 3, .match_node = tree.node(3)}},
                      {.shape = &tree}),
              ElementsAre(3, 9, 5, 7));
}

TEST(QueueOrderTest, PriorityThenArrival) {
  const PriorityRules rules{.enabled = true};
  EXPECT_THAT(ordered({.policy = QueuePolicy::kFcfs, .by_priority = true},
                      {{.arrival = 1, .urgency = urgency_of(0, rules)},
                       {.arrival = 2, .urgency = urgency_of(5, rules)},
                       {.arrival = 3, .urgency = urgency_of(5, rules)},
                       {.arrival = 4, .urgency = urgency_of(std::nullopt, rules)}}),
              ElementsAre(2, 3, 1, 4));
}

TEST(QueueOrderTest, ReturnedRequestsGoBeforeTheirEquals) {
  const std::vector<QueueEntry> entries = {{.arrival = 1, .urgency = 1},
                                           {.arrival = 2, .urgency = 0},
                                           {.arrival = 3, .returned = true, .urgency = 0},
                                           {.arrival = 4, .urgency = 0}};
  EXPECT_THAT(ordered({.policy = QueuePolicy::kFcfs, .by_priority = true}, entries),
              ElementsAre(1, 3, 2, 4));
  EXPECT_THAT(ordered({.policy = QueuePolicy::kFcfs}, entries), ElementsAre(3, 1, 2, 4));
}

TEST(QueueOrderTest, UrgencyIsIgnoredUnlessAskedFor) {
  EXPECT_THAT(ordered({.policy = QueuePolicy::kFcfs},
                      {{.arrival = 1, .urgency = 0}, {.arrival = 2, .urgency = 9}}),
              ElementsAre(1, 2));
}

TEST(QueueOrderTest, NoRequestIsPassedForEver) {
  const NumberedTree tree({0, 0});
  const std::vector<QueueEntry> entries = {
      {.arrival = 1, .queued_seconds = 5.1},
      {.arrival = 2, .queued_seconds = 5.05, .matched_tokens = 10, .match_node = tree.node(1)},
      {.arrival = 3, .queued_seconds = 4, .matched_tokens = 900, .match_node = tree.node(1)},
      {.arrival = 4, .queued_seconds = 1, .returned = true}};
  for (const QueuePolicy policy : {QueuePolicy::kLpm, QueuePolicy::kDfsWeight}) {
    EXPECT_THAT(ordered({.policy = policy, .max_wait_seconds = 5}, entries, {.shape = &tree}),
                ElementsAre(1, 2, 4, 3))
        << to_string(policy);
    EXPECT_THAT(
        ordered({.policy = policy, .max_wait_seconds = 0}, entries, {.shape = &tree}),
        ElementsAre(4, policy == QueuePolicy::kLpm ? 3 : 2, policy == QueuePolicy::kLpm ? 2 : 3, 1))
        << to_string(policy);
  }
}

TEST(QueueOrderTest, RunningRoutingKeysGoFirstThenByName) {
  const std::vector<QueueEntry> entries = {
      {.arrival = 1, .routing_key = "c"},
      {.arrival = 2, .routing_key = "b", .routing_running = 2},
      {.arrival = 3, .routing_key = "a"},
      {.arrival = 4, .routing_key = "d", .routing_running = 3},
      {.arrival = 5, .routing_key = "aa", .routing_running = 2},
      {.arrival = 6}};
  EXPECT_THAT(ordered({.policy = QueuePolicy::kRoutingKey}, entries, {.routing_key_runs = true}),
              ElementsAre(4, 5, 2, 6, 3, 1));
  EXPECT_THAT(ordered({.policy = QueuePolicy::kRoutingKey}, entries),
              ElementsAre(1, 2, 3, 4, 5, 6));
}

TEST(QueueOrderTest, HighestResponseRatioNext) {
  EXPECT_THAT(
      ordered({.policy = QueuePolicy::kHrrn},
              {{.arrival = 1, .uncached_tokens = 100, .engine_prefilled = 1000},
               {.arrival = 2, .uncached_tokens = 10, .engine_prefilled = 500},
               {.arrival = 3, .uncached_tokens = 0, .engine_prefilled = 0},
               {.arrival = 4, .uncached_tokens = 1, .deprioritized = true, .engine_prefilled = 900},
               {.arrival = 5, .uncached_tokens = 2, .engine_prefilled = 100}}),
      ElementsAre(3, 2, 5, 1, 4));
}

TEST(QueueOrderTest, ShortestPrefillFirst) {
  EXPECT_THAT(ordered({.policy = QueuePolicy::kShortestPrefillFirst},
                      {{.arrival = 1, .uncached_tokens = 50},
                       {.arrival = 2, .uncached_tokens = 1},
                       {.arrival = 3, .uncached_tokens = 0},
                       {.arrival = 4, .uncached_tokens = 5, .deprioritized = true},
                       {.arrival = 5, .uncached_tokens = 7}}),
              ElementsAre(2, 3, 5, 1, 4));
}

TEST(QueueOrderTest, TheDeprioritizedFollowTheirArrivalWhateverTheyMatch) {
  const std::vector<QueueEntry> entries = {
      {.arrival = 1, .matched_tokens = 3, .uncached_tokens = 9, .deprioritized = true},
      {.arrival = 2,
       .matched_tokens = 8,
       .uncached_tokens = 4,
       .deprioritized = true,
       .engine_prefilled = 100},
      {.arrival = 3, .matched_tokens = 0, .uncached_tokens = 12}};
  EXPECT_THAT(ordered({.policy = QueuePolicy::kLpm}, entries), ElementsAre(3, 1, 2));
  EXPECT_THAT(ordered({.policy = QueuePolicy::kHrrn}, entries), ElementsAre(3, 1, 2));
}

TEST(QueueOrderTest, RandomIsTheSameForASeedAndAPassAndDifferentForOthers) {
  std::vector<QueueEntry> entries;
  std::vector<int64_t> arrivals;
  for (int64_t i = 0; i < 20; ++i) {
    entries.push_back({.arrival = i});
    arrivals.push_back(i);
  }
  const auto shuffled = [&](uint64_t seed, uint64_t pass) {
    return ordered({.policy = QueuePolicy::kRandom, .seed = seed}, entries, {.pass = pass});
  };
  EXPECT_EQ(shuffled(1, 7), shuffled(1, 7));
  EXPECT_NE(shuffled(1, 7), shuffled(1, 8));
  EXPECT_NE(shuffled(1, 7), shuffled(2, 7));
  EXPECT_NE(shuffled(1, 7), arrivals);
  EXPECT_THAT(shuffled(1, 7), ::testing::UnorderedElementsAreArray(arrivals));
}

TEST(QueueOrderTest, RandomFavoursNoRequest) {
  std::vector<int> first(8, 0);
  for (uint64_t pass = 0; pass < 8000; ++pass) {
    std::vector<QueueEntry> entries;
    for (int64_t i = 0; i < 8; ++i) entries.push_back({.arrival = i});
    ++first[static_cast<size_t>(
        ordered({.policy = QueuePolicy::kRandom, .seed = 3}, entries, {.pass = pass}).front())];
  }
  for (const int count : first) EXPECT_NEAR(count, 1000, 150);  // 5 standard deviations
}

TEST(QueueOrderTest, FairOrdersClassesFirstAndTenantsInsideThem) {
  FairShare fair({});
  const int32_t rich = fair.tenant("rich");
  const int32_t poor = fair.tenant("poor");
  fair.arrive(rich);
  fair.arrive(poor);
  fair.charge_output(rich, 50);
  const std::vector<QueueEntry> entries = {
      {.arrival = 1, .urgency = 0, .uncached_tokens = 60, .tenant = rich},
      {.arrival = 2, .urgency = 1, .uncached_tokens = 60, .tenant = rich},
      {.arrival = 3, .urgency = 0, .uncached_tokens = 80, .tenant = poor},
      {.arrival = 4, .urgency = 0, .uncached_tokens = 80, .tenant = poor},
      {.arrival = 5, .returned = true, .urgency = 0, .tenant = rich}};
  EXPECT_THAT(
      ordered({.policy = QueuePolicy::kFair, .by_priority = true}, entries, {.fair = &fair}),
      ElementsAre(2, 5, 3, 4, 1));
  // One class: rich 100 against poor 0, 80, 160.
  EXPECT_THAT(ordered({.policy = QueuePolicy::kFair}, entries, {.fair = &fair}),
              ElementsAre(5, 3, 4, 1, 2));
}

TEST(QueueOrderTest, FairCarriesCountersFromClassToClassAndLeavesTheReturnedInOrder) {
  FairShare fair({});
  const int32_t a = fair.tenant("a");
  const int32_t b = fair.tenant("b");
  fair.arrive(a);
  fair.arrive(b);
  const QueueOrderOptions options{.policy = QueuePolicy::kFair, .by_priority = true};
  EXPECT_THAT(ordered(options,
                      {{.arrival = 1, .urgency = 1, .uncached_tokens = 100, .tenant = a},
                       {.arrival = 2, .uncached_tokens = 10, .tenant = a},
                       {.arrival = 3, .uncached_tokens = 10, .tenant = b}},
                      {.fair = &fair}),
              ElementsAre(1, 3, 2));
  fair.charge_output(a, 50);
  EXPECT_THAT(ordered(options,
                      {{.arrival = 1, .returned = true, .uncached_tokens = 10, .tenant = a},
                       {.arrival = 2, .returned = true, .uncached_tokens = 10, .tenant = b},
                       {.arrival = 3, .uncached_tokens = 10, .tenant = a},
                       {.arrival = 4, .uncached_tokens = 10, .tenant = b}},
                      {.fair = &fair}),
              ElementsAre(1, 2, 4, 3));
}

// Random entries over a random tree; few distinct values, so that ties are common.
class RandomQueue {
 public:
  explicit RandomQueue(uint32_t seed) : random_(seed), tree_(parents()) {
    for (const char* name : {"a", "b", "c"}) fair.arrive(fair.tenant(name));
    fair.charge_output(fair.tenant("b"), 40);
  }

  std::vector<QueueEntry> entries(int64_t count) {
    std::vector<QueueEntry> result;
    for (int64_t i = 0; i < count; ++i) {
      const bool deprioritized = pick(4) == 0;
      result.push_back({.arrival = i * 3,
                        .queued_seconds = static_cast<double>(pick(8)),
                        .returned = pick(5) == 0,
                        .urgency = pick(3) - 1,
                        .max_new_tokens = pick(4) * 16,
                        .matched_tokens = pick(3) * 64,
                        .uncached_tokens = pick(4) * 10,
                        .match_node = tree_.node(static_cast<size_t>(pick(30))),
                        .deprioritized = deprioritized,
                        .routing_key = kKeys[static_cast<size_t>(pick(3))],
                        .routing_running = pick(2),
                        .engine_prefilled = pick(3) * 20,
                        .tenant = static_cast<int32_t>(pick(3)),
                        .slack_seconds = static_cast<double>(pick(3))});
    }
    return result;
  }

  int64_t pick(int64_t bound) {
    return std::uniform_int_distribution<int64_t>(0, bound - 1)(random_);
  }

  QueueOrderInputs inputs() {
    return {.pass = 5, .routing_key_runs = true, .shape = &tree_, .fair = &fair};
  }

  std::mt19937& generator() { return random_; }

  FairShare fair{FairShareOptions{}};

 private:
  static constexpr std::array<std::string_view, 3> kKeys = {"", "x", "y"};

  std::vector<int32_t> parents() {
    std::vector<int32_t> result = {0};
    for (int64_t i = 1; i < 30; ++i) result.push_back(static_cast<int32_t>(pick(i)));
    return result;
  }

  std::mt19937 random_;
  NumberedTree tree_;
};

TEST(QueueOrderTest, EveryPolicyGivesOneOrderWhateverOrderTheEntriesComeIn) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    RandomQueue queue(seed);
    std::vector<QueueEntry> entries = queue.entries(1 + queue.pick(140));
    for (const QueuePolicy policy : kAllPolicies) {
      SCOPED_TRACE(fmt::format("seed = {}, policy = {}", seed, to_string(policy)));
      const QueueOrderOptions options{.policy = policy, .by_priority = seed % 2 == 0};
      const std::vector<int64_t> once = ordered(options, entries, queue.inputs());
      std::shuffle(entries.begin(), entries.end(), queue.generator());
      ASSERT_EQ(once, ordered(options, entries, queue.inputs()));
      std::vector<int64_t> sorted = once;
      std::sort(sorted.begin(), sorted.end());
      ASSERT_TRUE(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end());
      ASSERT_EQ(sorted.size(), entries.size());
    }
  }
}

// The tree order by its definition: recursion over explicit children.
void walk(int32_t node, const std::vector<int32_t>& parents, const std::vector<int32_t>& ends,
          std::vector<int64_t>& order) {
  const auto below = [&](int32_t root) {
    std::pair<int64_t, int64_t> weight_and_first(0, 1 << 30);
    for (size_t i = 0; i < ends.size(); ++i) {
      for (int32_t at = ends[i];; at = parents[static_cast<size_t>(at)]) {
        if (at == root) {
          ++weight_and_first.first;
          weight_and_first.second = std::min(weight_and_first.second, static_cast<int64_t>(i));
        }
        if (at == root || at == 0) break;
      }
    }
    return weight_and_first;
  };
  std::vector<std::array<int64_t, 3>> children;  // -weight, first arrival, node
  for (size_t child = 1; child < parents.size(); ++child) {
    if (parents[child] != node) continue;
    const auto [weight, first] = below(static_cast<int32_t>(child));
    children.push_back({-weight, first, static_cast<int64_t>(child)});
  }
  std::sort(children.begin(), children.end());
  for (const auto& child : children) walk(static_cast<int32_t>(child[2]), parents, ends, order);
  for (size_t i = 0; i < ends.size(); ++i) {
    if (ends[i] == node) order.push_back(static_cast<int64_t>(i));
  }
}

TEST(QueueOrderTest, TheTreeOrderIsTheRecursiveWalk) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](size_t bound) { return static_cast<int32_t>(random() % bound); };
    std::vector<int32_t> parents = {0};
    for (size_t i = 1; i < 20; ++i) parents.push_back(pick(i));
    const NumberedTree tree(parents);
    std::vector<int32_t> ends;
    std::vector<QueueEntry> entries;
    for (int64_t i = 0; i < 40; ++i) {
      ends.push_back(pick(20));
      entries.push_back({.arrival = i, .match_node = tree.node(static_cast<size_t>(ends.back()))});
    }
    std::vector<int64_t> expected;
    walk(0, parents, ends, expected);
    ASSERT_EQ(ordered({.policy = QueuePolicy::kDfsWeight}, entries, {.shape = &tree}), expected)
        << "seed = " << seed;
  }
}

TEST(QueueOrderTest, AllocatesNothingOnceGrown) {
  if (!::heddle::testing::AllocationCount::supported()) GTEST_SKIP() << "a sanitizer counts itself";
  RandomQueue queue(1);
  for (const QueuePolicy policy : kAllPolicies) {
    QueueOrder order({.policy = policy, .by_priority = true});
    std::vector<QueueEntry> entries = queue.entries(300);
    const QueueOrderInputs inputs = queue.inputs();
    order.order(entries, inputs);
    std::shuffle(entries.begin(), entries.end(), queue.generator());
    order.order(entries, inputs);
    std::shuffle(entries.begin(), entries.end(), queue.generator());
    const ::heddle::testing::AllocationCount allocations;
    order.order(entries, inputs);
    EXPECT_EQ(allocations.count(), 0) << to_string(policy);
  }
}

}  // namespace
}  // namespace heddle::scheduler
