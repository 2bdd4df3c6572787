// SPDX-License-Identifier: Apache-2.0
// Host time of a step: the scheduler's cost while the device waits for its next plan. The outputs
// of steps are made up while the clock is stopped.
#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <benchmark/benchmark.h>

#include "core/check.h"
#include "scheduler/batch_scheduler.h"
#include "scheduler/queue_order.h"

namespace heddle::scheduler {
namespace {

BatchSchedulerOptions server(int32_t max_running) {
  BatchSchedulerOptions options;
  options.cache.pools.page_size = 16;
  options.cache.pools.num_pages = 1'000'000;
  options.cache.pools.num_state_slots = 2000;
  options.cache.pools.keeps_hidden = true;
  options.cache.pools.page_bytes = 16 * 24576;
  options.cache.pools.state_slot_bytes = 77266944;
  options.cache.pools.flops = {.per_token = 6e9, .per_pair = 98304};
  options.max_running = max_running;
  options.limits.max_tokens = 8192;
  options.chunked_prefill_tokens = 8192;
  options.max_queued = 4096;
  return options;
}

// A scheduler with its requests, and a device that finishes immediately.
class Server {
 public:
  explicit Server(const BatchSchedulerOptions& options, double seconds_per_step = 0.02)
      : scheduler_(BatchScheduler::create(options, clock_).value()),
        seconds_per_step_(seconds_per_step) {}

  // A prompt that shares its first `shared_tokens` with all others.
  void submit(int64_t prompt_tokens, int64_t shared_tokens, int64_t max_new_tokens) {
    const auto id = static_cast<int64_t>(sequences_.size());
    Request request;
    for (int64_t i = 0; i < prompt_tokens; ++i) {
      request.prompt.push_back(static_cast<TokenId>(i < shared_tokens ? i : i * 131 + id * 7919));
    }
    request.stop.max_new_tokens = max_new_tokens;
    sequences_.push_back(
        std::make_unique<request::Sequence>(id, std::move(request), 0, std::span<const TokenId>()));
    HEDDLE_CHECK(scheduler_->submit(*sequences_.back()).ok());
  }

  // Returns the seconds of plan(), catch_up() and complete().
  double step() {
    const auto begin = std::chrono::steady_clock::now();
    scheduler_->plan(plan_);
    scheduler_->catch_up();
    const auto planned = std::chrono::steady_clock::now();
    output_.tokens.clear();
    for (const request::PlannedSequence& sequence : plan_.sequences) {
      if (!sequence.sample) continue;
      output_.tokens.push_back(
          {.sequence_id = sequence.sequence_id, .token = 1, .logprob = {}, .error = {}});
    }
    clock_.advance_seconds(seconds_per_step_);
    const auto ran = std::chrono::steady_clock::now();
    scheduler_->complete(plan_, output_);
    const auto end = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(end - ran + planned - begin).count();
  }

  [[nodiscard]] const BatchScheduler& scheduler() const { return *scheduler_; }

 private:
  ManualClock clock_;
  std::unique_ptr<BatchScheduler> scheduler_;
  std::vector<std::unique_ptr<request::Sequence>> sequences_;
  request::BatchPlan plan_;
  request::StepOutput output_;
  double seconds_per_step_;
};

constexpr int32_t kRunning = 256;

// `kRunning` sequences decode in every step from now on.
void fill_with_streams(Server& server) {
  constexpr int64_t kMaxNewTokens = 40'000;
  for (int i = 0; i < kRunning; ++i) server.submit(100, 0, kMaxNewTokens);
  while (server.scheduler().stats().num_running < kRunning) server.step();
  for (int i = 0; i < 20; ++i) server.step();
}

void measure(benchmark::State& state, Server& server) {
  double least = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const double seconds = server.step();
    least = std::min(least, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["least_us"] = 1e6 * least;
}

// 256 sequences decode; `waiting` others, of which all but the last 268 tokens are the same, find
// every batch slot taken or, with `slots_left`, no memory.
void decode(benchmark::State& state, QueuePolicy policy, int64_t waiting, bool slots_left,
            int64_t shared_tokens) {
  BatchSchedulerOptions options = server(slots_left ? 2 * kRunning : kRunning);
  options.scheduling.policy = policy;
  Server server(options);
  fill_with_streams(server);
  // With slots left, the first that waits is too large for the memory that is left.
  for (int64_t i = 0; i < waiting; ++i) {
    const bool blocks = slots_left && i == 0;
    server.submit(blocks ? 15'900'000 : shared_tokens + 268, blocks ? 0 : shared_tokens, 100);
  }
  for (int i = 0; i < 3; ++i) server.step();
  HEDDLE_CHECK_EQ(server.scheduler().stats().num_running, kRunning);
  measure(state, server);
  HEDDLE_CHECK_EQ(server.scheduler().stats().num_running, kRunning);
}

// 256 sequences decode while the first of 1000 prompts that share 32k tokens is computed in chunks
// and the others wait for it.
void follow(benchmark::State& state) {
  BatchSchedulerOptions options = server(2 * kRunning);
  options.chunked_prefill_tokens = 512;
  Server server(options, 0.002);
  fill_with_streams(server);
  for (int i = 0; i < 1000; ++i) server.submit(32768 + 268, 32768, 100);
  for (int i = 0; i < 3; ++i) server.step();
  HEDDLE_CHECK_EQ(server.scheduler().stats().num_running, kRunning + 1);
  measure(state, server);
  HEDDLE_CHECK_EQ(server.scheduler().stats().num_running, kRunning + 1);
}

// The first pass over waiting prompts.
void prefill(benchmark::State& state, int num_prompts, int64_t prompt_tokens,
             int64_t shared_tokens) {
  double least = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    Server server(scheduler::server(256));
    for (int i = 0; i < num_prompts; ++i) server.submit(prompt_tokens, shared_tokens, 100);
    const double seconds = server.step();
    least = std::min(least, seconds);
    state.SetIterationTime(seconds);
  }
  state.counters["least_us"] = 1e6 * least;
}

// Ordering 1,000 waiting requests alone, in order already or shuffled.
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

void settings(benchmark::internal::Benchmark* benchmark) {
  benchmark->UseManualTime()->Unit(benchmark::kMicrosecond);
}

BENCHMARK_CAPTURE(decode, none_waiting, QueuePolicy::kFcfs, 0, false, 32)
    ->Apply(settings)
    ->Iterations(3000);
BENCHMARK_CAPTURE(decode, waiting_1000_slots_taken, QueuePolicy::kFcfs, 1000, false, 32)
    ->Apply(settings)
    ->Iterations(3000);
BENCHMARK_CAPTURE(decode, waiting_1000_memory_taken, QueuePolicy::kFcfs, 1000, true, 32)
    ->Apply(settings)
    ->Iterations(3000);
BENCHMARK_CAPTURE(decode, waiting_1000_memory_taken_fair, QueuePolicy::kFair, 1000, true, 32)
    ->Apply(settings)
    ->Iterations(3000);
BENCHMARK_CAPTURE(decode, waiting_1000_memory_taken_sharing_32k, QueuePolicy::kFcfs, 1000, true,
                  32768)
    ->Apply(settings)
    ->Iterations(3000);
BENCHMARK(follow)->Apply(settings)->Iterations(50);
BENCHMARK_CAPTURE(prefill, waiting_128_unique, 128, 512, 0)->Apply(settings)->Iterations(100);
BENCHMARK_CAPTURE(prefill, waiting_128_sharing_400, 128, 512, 400)
    ->Apply(settings)
    ->Iterations(100);
// States of every 128th token enter the cache.
BENCHMARK_CAPTURE(prefill, one_of_8000, 1, 8000, 0)->Apply(settings)->Iterations(100);

BENCHMARK_CAPTURE(order, fcfs_in_order, QueuePolicy::kFcfs, false);
BENCHMARK_CAPTURE(order, fcfs_shuffled, QueuePolicy::kFcfs, true);
BENCHMARK_CAPTURE(order, lof_shuffled, QueuePolicy::kLof, true);
BENCHMARK_CAPTURE(order, fair_shuffled, QueuePolicy::kFair, true);

}  // namespace
}  // namespace heddle::scheduler
