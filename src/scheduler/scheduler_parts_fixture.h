// SPDX-License-Identifier: Apache-2.0
// A scheduler's parts around a cache, for tests that drive one part by hand, and sequences to give
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "scheduler/admission.h"
#include "scheduler/batch_scheduler.h"
#include "scheduler/scheduler_fixture.h"

namespace heddle::scheduler {

struct PartsOptions {
  BatchSchedulerOptions scheduler = roomy();
  bool by_priority = false;
};

class PartsFixture {
 public:
  explicit PartsFixture(const PartsOptions& options = {})
      : cache(options.scheduler.cache),
        fair(FairShareOptions::from(options.scheduler.scheduling)),
        waiting({.choice = {.by_priority = options.by_priority},
                 .scheduling = options.scheduler.scheduling,
                 .max_queued = options.scheduler.max_queued},
                cache, fair),
        running(options.scheduler.max_running, options.scheduler.limits, cache),
        sharing(options.scheduler.shares_in_flight, cache),
        pace({}),
        admission({.limits = {.page_size = options.scheduler.cache.pools.page_size,
                              .chunk_grid = options.scheduler.cache.grid,
                              .chunk_tokens = options.scheduler.chunked_prefill_tokens,
                              .pages_at_admission = true},
                   .max_step_tokens = options.scheduler.limits.max_tokens,
                   .needs_state = options.scheduler.cache.pools.has_states(),
                   .by_priority = options.by_priority,
                   .preemption = options.scheduler.scheduling.preemption},
                  {.cache = cache,
                   .fair = fair,
                   .waiting = waiting,
                   .running = running,
                   .sharing = sharing,
                   .pace = pace}) {}

  request::Sequence& make(std::vector<TokenId> prompt, int64_t max_new_tokens,
                          std::optional<int64_t> priority = std::nullopt) {
    Request request;
    request.prompt = std::move(prompt);
    request.stop.max_new_tokens = max_new_tokens;
    request.priority = priority;
    const auto id = static_cast<int64_t>(sequences_.size());
    sequences_.push_back(
        std::make_unique<request::Sequence>(id, std::move(request), 0, std::span<const TokenId>()));
    return *sequences_.back();
  }

  // A prompt of `num_tokens` that shares nothing with those of other ids.
  request::Sequence& make(int64_t num_tokens, int64_t max_new_tokens,
                          std::optional<int64_t> priority = std::nullopt) {
    const auto own = static_cast<TokenId>(1000 + sequences_.size());
    return make(std::vector<TokenId>(static_cast<size_t>(num_tokens), own), max_new_tokens,
                priority);
  }

  Status submit(request::Sequence& sequence) {
    request::Sequence* const alone = &sequence;
    return waiting.submit_all({&alone, 1}, running);
  }

  // A pass over the queue with a new budget.
  std::optional<Admission::Blocked> admit(double now = 0) {
    plan.clear();
    waiting.begin_pass();
    waiting.order(running, {}, now);
    sharing.mark(waiting.entries(), running);
    PrefillBudget budget = admission.budget(0);
    waiting.expect_no_room();
    return admission.admit_waiting(budget, plan, now);
  }

  // The step that `plan` describes ended, and every draw gave `token`.
  void complete(TokenId token = 7) {
    for (const request::PlannedSequence& planned : plan.sequences) {
      const request::SampledToken sampled{.sequence_id = planned.sequence_id, .token = token};
      const std::span<const request::SampledToken> drawn(&sampled, planned.sample ? 1 : 0);
      drew = running.complete(planned, drawn) > 0;
    }
  }

  // Ids in the order of their start.
  [[nodiscard]] std::vector<int64_t> running_ids() const {
    std::vector<int64_t> ids;
    for (const RunningSequence* other : running.sequences()) ids.push_back(other->sequence->id);
    return ids;
  }

  [[nodiscard]] std::vector<int64_t> waiting_ids() const {
    std::vector<int64_t> ids;
    for (const WaitingSequence& other : waiting.sequences()) ids.push_back(other.sequence->id);
    return ids;
  }

  cache::PrefixCache cache;
  FairShare fair;
  WaitingQueue waiting;
  RunningSet running;
  InFlightSharing sharing;
  StepPace pace;
  Admission admission;
  request::BatchPlan plan;
  bool drew = false;  // the last sequence of the last step

 private:
  std::vector<std::unique_ptr<request::Sequence>> sequences_;
};

}  // namespace heddle::scheduler
