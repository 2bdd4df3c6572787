// SPDX-License-Identifier: Apache-2.0
// A scheduler and a runner that do as a test says and record what is asked of them, for the tests
// of the engine's parts.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "engine/live_request.h"
#include "runner/runner.h"
#include "scheduler/scheduler.h"

namespace heddle::engine {

// A plan that draws a token for each of these sequences.
inline request::BatchPlan plan_for(const std::vector<int64_t>& sequence_ids) {
  request::BatchPlan plan;
  for (const int64_t id : sequence_ids) {
    plan.sequences.push_back({.sequence_id = id, .sample = true});
  }
  return plan;
}

// The output of such a plan: the token of sequence i is i.
inline request::StepOutput output_for(const request::BatchPlan& plan) {
  request::StepOutput output;
  for (const request::PlannedSequence& planned : plan.sequences) {
    if (!planned.sample) continue;
    output.tokens.push_back(
        {.sequence_id = planned.sequence_id, .token = static_cast<TokenId>(planned.sequence_id)});
  }
  return output;
}

inline std::unique_ptr<LiveRequest> live_request(std::string id, Engine::EventCallback on_event,
                                                 int64_t max_new_tokens = 4) {
  Request request;
  request.id = std::move(id);
  request.prompt = {1, 2, 3};
  request.stop.max_new_tokens = max_new_tokens;
  return std::make_unique<LiveRequest>(std::move(request), 0, std::vector<TokenId>{}, nullptr,
                                       std::move(on_event));
}

// Returns the plans in `plans` one after the other, then none.
class RecordingScheduler final : public scheduler::Scheduler {
 public:
  std::deque<request::BatchPlan> plans;
  std::function<void()> on_plan;

  // A released sequence is finished immediately, or kEnding while this is set.
  bool step_in_flight = false;

  std::vector<std::string> calls;  // "complete 1", "abandon 1", "release 1 done"

  [[nodiscard]] Status check_fits(const request::Sequence&) const override { return {}; }

  [[nodiscard]] Status check_call(std::span<const request::Sequence* const>) const override {
    return {};
  }

  Status submit_all(std::span<request::Sequence* const>) override { return {}; }

  void plan(request::BatchPlan& plan) override {
    if (on_plan) on_plan();
    plan.clear();
    if (plans.empty()) return;
    plan = std::move(plans.front());
    plans.pop_front();
  }

  std::function<void()> on_catch_up;

  void catch_up() override {
    if (on_catch_up) on_catch_up();
  }

  void complete(const request::BatchPlan& plan, const request::StepOutput&) override {
    calls.push_back(fmt::format("complete {}", plan.sequences.at(0).sequence_id));
  }

  void abandon(const request::BatchPlan& plan) override {
    calls.push_back(fmt::format("abandon {}", plan.sequences.at(0).sequence_id));
  }

  void release(request::Sequence& sequence, scheduler::Ending ending) override {
    calls.push_back(fmt::format("release {} {}", sequence.id,
                                ending == scheduler::Ending::kDone ? "done" : "aborted"));
    sequence.status =
        step_in_flight ? request::SequenceStatus::kEnding : request::SequenceStatus::kFinished;
  }

  void take_dropped(std::vector<scheduler::Dropped>&) override {}

  void retract_all() override {}

  void set_paused(bool) override {}

  void defer_arrivals(bool) override {}

  void clear_cache() override {}

  [[nodiscard]] scheduler::SchedulerStats stats() const override { return {}; }

  void check_invariants() const override {}
};

// Computes output_for() every plan when it is waited for.
class RecordingRunner final : public runner::Runner {
 public:
  std::function<Status()> on_submit;
  std::function<Status(request::StepOutput&)> on_wait;
  std::vector<std::string> calls;  // "submit 1", "wait 1", "recycle"

  [[nodiscard]] const runner::PoolSizes& pool_sizes() const override { return sizes_; }

  [[nodiscard]] const request::StepLimits& step_limits() const override { return limits_; }

  Status submit(const request::BatchPlan& plan) override {
    if (on_submit) HEDDLE_RETURN_IF_ERROR(on_submit());
    calls.push_back(fmt::format("submit {}", plan.sequences.at(0).sequence_id));
    in_flight_.push_back(&plan);
    return {};
  }

  Result<request::StepOutput> wait() override {
    const request::BatchPlan& plan = *in_flight_.at(0);
    in_flight_.erase(in_flight_.begin());
    calls.push_back(fmt::format("wait {}", plan.sequences.at(0).sequence_id));
    request::StepOutput output = output_for(plan);
    if (on_wait) HEDDLE_RETURN_IF_ERROR(on_wait(output));
    return output;
  }

  void recycle(request::StepOutput) override { calls.emplace_back("recycle"); }

 private:
  runner::PoolSizes sizes_;
  request::StepLimits limits_;
  std::vector<const request::BatchPlan*> in_flight_;
};

}  // namespace heddle::engine
