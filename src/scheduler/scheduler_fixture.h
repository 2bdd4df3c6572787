// SPDX-License-Identifier: Apache-2.0
// A BatchScheduler over the toy device, driven step by step with a clock that stands still until it
// is moved.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "scheduler/batch_scheduler.h"
#include "support/fake_runner.h"

namespace heddle::scheduler {

// A cache with room for all sequences of these tests, and 16 batch slots.
inline BatchSchedulerOptions roomy() {
  BatchSchedulerOptions options;
  options.cache.pools.num_pages = 1000;
  options.cache.pools.page_size = 4;
  options.cache.pools.num_state_slots = 64;
  options.cache.grid = 8;
  options.cache.decode_interval = 16;
  options.cache.pools.keeps_hidden = true;
  options.cache.pools.page_bytes = 4;
  options.cache.pools.state_slot_bytes = 200;
  options.cache.pools.flops = testing::kToyFlops;
  options.max_running = 16;
  options.limits.max_tokens = 256;
  options.chunked_prefill_tokens = 256;
  options.max_queued = 100;
  return options;
}

// The pools that the scheduler hands out, and the steps that it plans.
inline cache::PoolSizes runner_sizes(const BatchSchedulerOptions& options) {
  cache::PoolSizes sizes = options.cache.pools;
  sizes.max_sequences = options.max_running;
  return sizes;
}

class SchedulerFixture {
 public:
  explicit SchedulerFixture(const BatchSchedulerOptions& options)
      : scheduler(BatchScheduler::create(options, clock).value()),
        runner(runner_sizes(scheduler->options()), scheduler->options().limits) {}

  // A sequence that was not submitted. Its prompt is `prompt`.
  request::Sequence& make(std::vector<TokenId> prompt, int64_t max_new_tokens,
                          std::vector<TokenId> stops = {}, int64_t min_new_tokens = 0) {
    Request request;
    request.prompt = std::move(prompt);
    request.stop.max_new_tokens = max_new_tokens;
    request.stop.min_new_tokens = min_new_tokens;
    request.stop.token_ids = std::move(stops);
    return make(std::move(request));
  }

  request::Sequence& make(Request request) {
    const auto id = static_cast<int64_t>(sequences.size());
    sequences.push_back(
        std::make_unique<request::Sequence>(id, std::move(request), 0, std::span<const TokenId>()));
    sequences.back()->timings.submit_seconds = clock.now_seconds();
    return *sequences.back();
  }

  // A prompt of `num_tokens` that shares nothing with those of other ids.
  [[nodiscard]] std::vector<TokenId> unique_prompt(int64_t num_tokens) const {
    std::vector<TokenId> prompt;
    for (int64_t i = 0; i < num_tokens; ++i) {
      prompt.push_back(static_cast<TokenId>((i * 7 + std::ssize(sequences) * 31) % 250));
    }
    return prompt;
  }

  request::Sequence& submit(std::vector<TokenId> prompt, int64_t max_new_tokens) {
    request::Sequence& sequence = make(std::move(prompt), max_new_tokens);
    Status status = scheduler->check_fits(sequence);
    if (status.ok()) status = scheduler->submit(sequence);
    EXPECT_TRUE(status.ok()) << status.to_string();
    return sequence;
  }

  request::Sequence& submit(int64_t prompt_tokens, int64_t max_new_tokens) {
    return submit(unique_prompt(prompt_tokens), max_new_tokens);
  }

  static bool done(const request::Sequence& sequence) {
    const bool stopped =
        sequence.num_output_tokens() > 0 && sequence.ends_text(sequence.tokens.back());
    const int64_t wanted = sequence.request.stop.max_new_tokens;
    if (wanted > 0) return stopped || sequence.num_output_tokens() >= wanted;
    return sequence.num_computed >= sequence.num_prompt_tokens;
  }

  // Plans a step if there is one, and completes one if two are in flight, if nothing was planned,
  // or if `overlap` is off. False when nothing happened.
  bool step() {
    request::BatchPlan& next = plans_[next_plan_];
    scheduler->plan(next);
    if (proves) scheduler->check_invariants();
    const bool launched = !next.empty();
    if (launched) {
      last_plan = &next;
      next_plan_ ^= 1;
      ++num_in_flight_;
      EXPECT_TRUE(runner.submit(next).ok());
      scheduler->catch_up();
      if (proves) scheduler->check_invariants();
    }
    if (num_in_flight_ == 0) return false;
    if (overlap && launched && num_in_flight_ < 2) return true;
    complete();
    return true;
  }

  void complete() {
    const request::BatchPlan& plan = plans_[(next_plan_ + 2 - num_in_flight_) % 2];
    --num_in_flight_;
    Result<request::StepOutput> output = runner.wait();
    ASSERT_TRUE(output.ok()) << output.status().to_string();
    scheduler->complete(plan, *output);
    for (const auto& sequence : sequences) {
      const bool live = sequence->status == request::SequenceStatus::kRunning ||
                        sequence->status == request::SequenceStatus::kWaiting;
      if (live && done(*sequence)) scheduler->release(*sequence, Ending::kDone);
    }
    if (proves) scheduler->check_invariants();
  }

  // Until nothing is left to do.
  void run() {
    for (int64_t steps = 0; step(); ++steps) ASSERT_LT(steps, 100000) << "does not come to an end";
  }

  // Runs the prompt alone to its end; returns the number of cached tokens.
  int64_t ask(std::vector<TokenId> prompt, int64_t max_new_tokens) {
    const request::Sequence& sequence = submit(std::move(prompt), max_new_tokens);
    run();
    return sequence.cache_report.reused_tokens;
  }

  // (id, new tokens) of the last plan.
  [[nodiscard]] std::vector<std::pair<int64_t, int64_t>> planned() const {
    std::vector<std::pair<int64_t, int64_t>> result;
    for (const auto& sequence : last_plan->sequences) {
      result.emplace_back(sequence.sequence_id, sequence.num_new_tokens());
    }
    return result;
  }

  static std::vector<TokenId> expected_output(const request::Sequence& sequence) {
    std::vector<TokenId> tokens(sequence.tokens.begin(),
                                sequence.tokens.begin() + sequence.num_prompt_tokens);
    std::vector<TokenId> output;
    while (std::ssize(output) < sequence.request.stop.max_new_tokens) {
      std::span<const TokenId> forbidden;
      if (std::ssize(output) < sequence.request.stop.min_new_tokens) {
        forbidden = sequence.ending_tokens;
      }
      tokens.push_back(testing::FakeRunner::next_token(tokens, forbidden));
      output.push_back(tokens.back());
      if (sequence.ends_text(tokens.back())) break;
    }
    return output;
  }

  static std::vector<TokenId> output_of(const request::Sequence& sequence) {
    return {sequence.output_tokens().begin(), sequence.output_tokens().end()};
  }

  ManualClock clock;
  std::unique_ptr<BatchScheduler> scheduler;
  testing::FakeRunner runner;
  bool overlap = false;
  bool proves = true;  // the invariants, after every step; costs O(pools)
  std::vector<std::unique_ptr<request::Sequence>> sequences;
  const request::BatchPlan* last_plan = nullptr;

 private:
  std::array<request::BatchPlan, 2> plans_;
  size_t next_plan_ = 0;
  size_t num_in_flight_ = 0;
};

}  // namespace heddle::scheduler
