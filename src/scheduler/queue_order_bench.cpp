// SPDX-License-Identifier: Apache-2.0
// Time to order 1,000 waiting requests, in order already and shuffled.
#include <algorithm>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "scheduler/queue_order.h"

namespace heddle::scheduler {
namespace {

void order(benchmark::State& state, QueuePolicy policy, bool shuffled) {
  std::mt19937 random(1);
  FairShare fair({});
  for (const char* name : {"a", "b", "c", "d"}) fair.arrive(fair.tenant(name));
  std::vector<QueueEntry> entries;
  for (int64_t i = 0; i < 1000; ++i) {
    entries.push_back({.arrival = i,
                       .max_new_tokens = static_cast<int64_t>(random() % 1000),
                       .uncached_tokens = static_cast<int64_t>(random() % 1000),
                       .tenant = static_cast<int32_t>(random() % 4)});
  }
  if (shuffled) std::shuffle(entries.begin(), entries.end(), random);
  QueueOrder order({.policy = policy});
  std::vector<QueueEntry> work = entries;
  order.order(work, {.fair = &fair});
  for (auto _ : state) {
    if (shuffled) std::copy(entries.begin(), entries.end(), work.begin());
    order.order(work, {.fair = &fair});
    benchmark::DoNotOptimize(work.data());
  }
}

BENCHMARK_CAPTURE(order, fcfs_in_order, QueuePolicy::kFcfs, false);
BENCHMARK_CAPTURE(order, fcfs_shuffled, QueuePolicy::kFcfs, true);
BENCHMARK_CAPTURE(order, lof_shuffled, QueuePolicy::kLof, true);
BENCHMARK_CAPTURE(order, fair_shuffled, QueuePolicy::kFair, true);

}  // namespace
}  // namespace heddle::scheduler
