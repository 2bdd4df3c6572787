// SPDX-License-Identifier: Apache-2.0
// A day of real traffic: the conversation trace of Mooncake (Qin et al., arXiv:2407.00079), an hour
// of one chat service, 24 times in a row (three times where policies are compared) through the real
// scheduler over the toy device, under a simulated clock. The trace names every 512 tokens of a
// prompt by a hash: equal hashes are equal prefixes. Lengths are scaled down by 64, so a block of
// the trace is 8 tokens here, which is the snapshot grid; pools, budgets and interval likewise.
//
// Every hour has hashes of its own, except that of the system prompt that nearly all requests
// share. The toy device does not give the answers of the trace's model, so a next turn never goes
// on at the exact end of the one before: reuse here is that of the prompts alone.
#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/compiler.h"
#include "scheduler/batch_scheduler.h"
#include "scheduler/scheduler_fixture.h"
#include "support/fake_runner.h"
#include "support/test_data.h"

namespace heddle::scheduler {
namespace {

using request::BatchPlan;
using request::Sequence;
using request::SequenceStatus;

constexpr int64_t kScale = 64;
constexpr int64_t kBlockTokens = 512 / kScale;
constexpr double kHourSeconds = 3600;

struct Call {
  double seconds = 0;
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  std::vector<int64_t> blocks;
};

// The numbers behind `"name": `, one or a list of them.
std::vector<int64_t> numbers_of(const std::string& line, const std::string& name) {
  std::vector<int64_t> numbers;
  size_t at = line.find("\"" + name + "\": ");
  if (at == std::string::npos) return numbers;
  at += name.size() + 4;
  const bool list = line[at] == '[';
  if (list) ++at;
  while (true) {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(&line[at], line.data() + line.size(), value);
    if (error != std::errc()) return numbers;
    numbers.push_back(value);
    at = static_cast<size_t>(end - line.data());
    if (!list || line[at] != ',') return numbers;
    at += 2;
  }
}

std::vector<Call> read_trace(const std::filesystem::path& path) {
  std::vector<Call> calls;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::vector<int64_t> time = numbers_of(line, "timestamp");
    const std::vector<int64_t> input = numbers_of(line, "input_length");
    const std::vector<int64_t> output = numbers_of(line, "output_length");
    if (time.size() != 1 || input.size() != 1 || output.size() != 1) return {};
    calls.push_back({.seconds = static_cast<double>(time[0]) / 1000,
                     .input_tokens = std::max<int64_t>(input[0] / kScale, 1),
                     .output_tokens = std::max<int64_t>(output[0] / kScale, 1),
                     .blocks = numbers_of(line, "hash_ids")});
  }
  return calls;
}

std::vector<TokenId> prompt_of(const Call& call, int hour) {
  std::vector<TokenId> prompt;
  for (int64_t i = 0; i < call.input_tokens; ++i) {
    const auto index = static_cast<size_t>(i / kBlockTokens);
    const int64_t block = index < call.blocks.size() ? call.blocks[index] : call.blocks.back();
    const int64_t name = block == 0 ? 0 : block + 200'000 * hour;
    prompt.push_back(static_cast<TokenId>(256 + name * kBlockTokens + i % kBlockTokens));
  }
  return prompt;
}

// The capacity of eight large accelerators, scaled: eight million tokens and 2,000 states.
BatchSchedulerOptions service(SnapshotPolicy policy, EvictionPolicy eviction) {
  BatchSchedulerOptions options;
  options.cache.policy = policy;
  options.cache.pools.page_size = policy == SnapshotPolicy::kNoBuffer ? 1 : 2;
  options.cache.pools.num_pages = 131'072 / options.cache.pools.page_size;
  options.cache.pools.num_state_slots = 2000;
  options.cache.grid = 8;
  options.cache.decode_interval = 8;
  options.cache.pools.keeps_hidden = true;
  options.cache.eviction = eviction;
  options.cache.pools.page_bytes = int64_t{24576} * kScale * options.cache.pools.page_size;
  options.cache.pools.state_slot_bytes = 77266944;
  options.cache.pools.flops.per_token = 6e9 * kScale;
  options.cache.pools.flops.per_pair = 98304.0 * kScale * kScale;
  options.max_running = 48;
  options.limits.max_tokens = 128 + 48;
  options.chunked_prefill_tokens = 128;
  options.max_queued = 100'000;
  return options;
}

class Service {
 public:
  explicit Service(const BatchSchedulerOptions& options)
      : scheduler_(BatchScheduler::create(options, clock_).value()),
        runner_(runner_sizes(scheduler_->options()), scheduler_->options().limits) {
    runner_.checks_plans = false;  // page tables of every step are not copied to be compared
  }

  // The hour's calls, `hour` hours after the beginning.
  void replay(const std::vector<Call>& calls, int hour) {
    for (const Call& call : calls) {
      while (clock_.now_seconds() < hour * kHourSeconds + call.seconds) {
        if (!step()) {
          clock_.advance_seconds(hour * kHourSeconds + call.seconds - clock_.now_seconds());
        }
      }
      submit(call, hour);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  void drain() {
    while (step()) {
    }
  }

  std::unique_ptr<BatchScheduler>& scheduler() { return scheduler_; }

  [[nodiscard]] const testing::FakeRunner& runner() const { return runner_; }

  [[nodiscard]] size_t num_live() const { return live_.size(); }

  int64_t num_submitted = 0;
  int64_t num_finished = 0;
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;
  int64_t wrong_answers = 0;
  double waited_seconds = 0;  // for the first token
  double host_seconds = 0;    // in the scheduler

 private:
  using Time = std::chrono::steady_clock;

  void submit(const Call& call, int hour) {
    Request request;
    request.prompt = prompt_of(call, hour);
    request.stop.max_new_tokens = call.output_tokens;
    const int64_t id = num_submitted++;
    auto sequence =
        std::make_unique<Sequence>(id, std::move(request), 0, std::span<const TokenId>());
    sequence->timings.submit_seconds = clock_.now_seconds();
    prompt_tokens += sequence->num_prompt_tokens;
    const auto begin = Time::now();
    const Status status = scheduler_->submit(*sequence);
    host_seconds += std::chrono::duration<double>(Time::now() - begin).count();
    ASSERT_TRUE(status.ok()) << status.to_string();
    ASSERT_TRUE(live_.emplace(id, std::move(sequence)).second);
  }

  // False when there is nothing to do.
  bool step() {
    BatchPlan& plan = plans_[next_plan_];
    auto begin = Time::now();
    scheduler_->plan(plan);
    host_seconds += std::chrono::duration<double>(Time::now() - begin).count();
    const bool launched = !plan.empty();
    if (launched) {
      next_plan_ ^= 1;
      ++num_in_flight_;
      EXPECT_TRUE(runner_.submit(plan).ok());
      begin = Time::now();
      scheduler_->catch_up();
      host_seconds += std::chrono::duration<double>(Time::now() - begin).count();
    }
    if (num_in_flight_ == 0) return false;
    if (launched && num_in_flight_ < 2) return true;

    const BatchPlan& oldest = plans_[(next_plan_ + 2 - num_in_flight_) % 2];
    --num_in_flight_;
    Result<request::StepOutput> output = runner_.wait();
    EXPECT_TRUE(output.ok());
    // Weights are read in 15 ms, and 80,000 tokens of the trace are computed in a second.
    const auto computed = static_cast<double>(oldest.num_rows() * kScale);
    clock_.advance_seconds(0.015 + computed / 80'000);
    begin = Time::now();
    scheduler_->complete(oldest, *output);
    host_seconds += std::chrono::duration<double>(Time::now() - begin).count();
    runner_.recycle(std::move(*output));
    for (const request::PlannedSequence& planned : oldest.sequences) {
      if (planned.sample) drew(planned.sequence_id);
    }
    std::erase_if(ending_, [this](int64_t id) {
      if (live_.at(id)->status != SequenceStatus::kFinished) return false;
      live_.erase(id);
      ++num_finished;
      return true;
    });
    if (++num_steps_ % 5000 == 0) scheduler_->check_invariants();
    return true;
  }

  void drew(int64_t id) {
    const auto found = live_.find(id);
    ASSERT_NE(found, live_.end());
    Sequence& sequence = *found->second;
    if (sequence.status == SequenceStatus::kEnding) return;
    if (sequence.num_output_tokens() == 1 && sequence.timings.first_token_seconds < 0) {
      sequence.timings.first_token_seconds = clock_.now_seconds();
      waited_seconds += clock_.now_seconds() - sequence.timings.submit_seconds;
    }
    if (!SchedulerFixture::done(sequence)) return;
    if (SchedulerFixture::output_of(sequence) != SchedulerFixture::expected_output(sequence)) {
      ++wrong_answers;
    }
    reused_tokens += sequence.cache_report.reused_tokens;
    const auto begin = Time::now();
    scheduler_->release(sequence, Ending::kDone);
    host_seconds += std::chrono::duration<double>(Time::now() - begin).count();
    ending_.push_back(id);
  }

  ManualClock clock_;
  std::unique_ptr<BatchScheduler> scheduler_;
  testing::FakeRunner runner_;
  std::unordered_map<int64_t, std::unique_ptr<Sequence>> live_;
  std::vector<int64_t> ending_;
  std::array<BatchPlan, 2> plans_;
  size_t next_plan_ = 0;
  size_t num_in_flight_ = 0;
  int64_t num_steps_ = 0;
};

struct Policy {
  const char* name;
  SnapshotPolicy policy;
  EvictionPolicy eviction;
  int hours;
};

class TraceTest : public ::testing::TestWithParam<Policy> {};

TEST_P(TraceTest, ConversationsLoseNothing) {
  if (HEDDLE_SANITIZED) GTEST_SKIP() << "hours of conversations take minutes under a sanitizer";
  HEDDLE_SHARED_PATH_OR_SKIP(path, "data/traces/mooncake_conversation_trace.jsonl");
  const std::vector<Call> calls = read_trace(path);
  ASSERT_EQ(calls.size(), 12031u);
  Service service(scheduler::service(GetParam().policy, GetParam().eviction));
  for (int hour = 0; hour < GetParam().hours && !HasFatalFailure(); ++hour) {
    service.replay(calls, hour);
  }
  service.drain();
  EXPECT_EQ(service.num_submitted, std::ssize(calls) * GetParam().hours);
  EXPECT_EQ(service.num_finished, service.num_submitted);
  EXPECT_EQ(service.num_live(), 0u);
  EXPECT_EQ(service.wrong_answers, 0);
  EXPECT_THAT(service.runner().complaints(), ::testing::IsEmpty());
  const SchedulerStats stats = service.scheduler()->stats();
  service.scheduler()->check_invariants();
  service.scheduler()->clear_cache();
  EXPECT_EQ(service.scheduler()->stats().cache.pages_used, 0);
  EXPECT_EQ(service.scheduler()->stats().cache.state_slots_used, 0);
  EXPECT_GT(service.reused_tokens, 0);
  fmt::print(
      "{}: {:.1f} % of prompt tokens reused, {:.2f} s to the first token on average, {} "
      "retractions, {} waited for a leader; {} steps, {:.1f} us each in the scheduler\n",
      GetParam().name,
      100.0 * static_cast<double>(service.reused_tokens) /
          static_cast<double>(service.prompt_tokens),
      service.waited_seconds / static_cast<double>(service.num_submitted), stats.num_retractions,
      stats.deferred_sequences, service.runner().num_steps(),
      1e6 * service.host_seconds / static_cast<double>(service.runner().num_steps()));
}

INSTANTIATE_TEST_SUITE_P(
    Policies, TraceTest,
    ::testing::Values(Policy{"MultiForADay", SnapshotPolicy::kMulti, EvictionPolicy::kFlops, 24},
                      Policy{"Multi", SnapshotPolicy::kMulti, EvictionPolicy::kFlops, 3},
                      Policy{"MultiLru", SnapshotPolicy::kMulti, EvictionPolicy::kLru, 3},
                      Policy{"ExtraBuffer", SnapshotPolicy::kExtraBuffer, EvictionPolicy::kLru, 3},
                      Policy{"NoBuffer", SnapshotPolicy::kNoBuffer, EvictionPolicy::kLru, 3}),
    [](const auto& policy) { return std::string(policy.param.name); });

}  // namespace
}  // namespace heddle::scheduler
