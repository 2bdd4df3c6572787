// SPDX-License-Identifier: Apache-2.0
// The life of a sequence. It arrives in batch_scheduler_arrival.cpp, is admitted in
// batch_scheduler_admission.cpp and planned in batch_scheduler_plan.cpp.
#include "scheduler/batch_scheduler.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"

namespace heddle::scheduler {

using request::BatchPlan;
using request::PlannedSequence;
using request::SampledToken;
using request::Sequence;
using request::SequenceStatus;
using request::StepOutput;

namespace {

BatchSchedulerOptions consistent(BatchSchedulerOptions options) {
  HEDDLE_CHECK_GE(options.cache.num_pages, 1);
  HEDDLE_CHECK_GE(options.max_step_tokens, 1);
  HEDDLE_CHECK_GE(options.chunked_prefill_tokens, 1);
  HEDDLE_CHECK_GE(options.max_running, 1);
  int64_t rows = std::min<int64_t>(options.max_running, options.max_step_tokens);
  if (options.cache.needs_state) {
    HEDDLE_CHECK_GE(options.cache.num_state_slots, 1);
    rows = std::min(rows, options.cache.num_state_slots);
  }
  options.max_running = static_cast<int32_t>(rows);
  return options;
}

}  // namespace

Result<std::unique_ptr<BatchScheduler>> BatchScheduler::create(const BatchSchedulerOptions& options,
                                                               const Clock& clock) {
  HEDDLE_ASSIGN_OR_RETURN(const QueuePolicyChoice choice,
                          choose_queue_policy(options.scheduling, options.cache.enabled));
  if (choice.replaced_without_cache) {
    log_warning(
        fmt::format("schedule policy \"{}\" needs the prefix cache, which is off: using fcfs",
                    options.scheduling.policy));
  }
  return std::unique_ptr<BatchScheduler>(new BatchScheduler(consistent(options), choice, clock));
}

BatchScheduler::BatchScheduler(const BatchSchedulerOptions& options,
                               const QueuePolicyChoice& choice, const Clock& clock)
    : options_(options),
      choice_(choice),
      clock_(&clock),
      cache_(options.cache),
      order_({.policy = choice.policy,
              .by_priority = choice.by_priority,
              .max_wait_seconds = options.scheduling.cache_aware_max_wait_seconds,
              .seed = options.random_seed}),
      followers_({.check_tokens = std::numeric_limits<int64_t>::max()}),
      fair_(FairShareOptions::from(options.scheduling)),
      ratio_(options.scheduling.conservativeness),
      interleave_(options.scheduling.prefills_per_decode),
      preemption_rules_(PreemptionRules::from(options.scheduling)),
      last_id_(std::numeric_limits<int64_t>::min()) {
  const auto num_rows = static_cast<size_t>(options_.max_running);
  rows_.resize(num_rows);
  running_.reserve(num_rows);
  for (int32_t row = options_.max_running - 1; row >= 0; --row) free_rows_.push_back(row);
  any_time_limits_ = options_.scheduling.queue_timeout_seconds > 0 ||
                     options_.scheduling.running_timeout_seconds > 0;
}

// ---- Booking a step ----

void BatchScheduler::complete(const BatchPlan& plan, const StepOutput& output) {
  HEDDLE_CHECK(!plans_in_flight_.empty());
  size_t next = 0;
  for (const PlannedSequence& planned : plan.sequences) {
    const SampledToken* sampled = nullptr;
    if (planned.sample) {
      HEDDLE_CHECK_LT(next, output.tokens.size());
      sampled = &output.tokens[next++];
      HEDDLE_CHECK_EQ(sampled->sequence_id, planned.sequence_id);
    }
    settle(planned, sampled);
  }
  HEDDLE_CHECK_EQ(next, output.tokens.size());
  note_speed();
}

void BatchScheduler::abandon(const BatchPlan& plan) {
  HEDDLE_CHECK(!plans_in_flight_.empty());
  plans_in_flight_.erase(plans_in_flight_.begin());
  for (const PlannedSequence& planned : plan.sequences) {
    Row& row = rows_[static_cast<size_t>(planned.batch_slot)];
    --row.steps_in_flight;
    if (planned.sample) --row.draws_in_flight;
    row.num_planned -= planned.num_new_tokens();
    if (row.leaving != Leaving::kNo && row.steps_in_flight == 0) give_back(planned.batch_slot);
  }
}

void BatchScheduler::settle(const PlannedSequence& planned, const SampledToken* sampled) {
  Row& row = rows_[static_cast<size_t>(planned.batch_slot)];
  HEDDLE_CHECK(row.sequence != nullptr);
  Sequence& sequence = *row.sequence;
  HEDDLE_CHECK_EQ(sequence.id, planned.sequence_id);
  --row.steps_in_flight;
  if (planned.sample) --row.draws_in_flight;
  const int64_t count = planned.num_new_tokens();
  if (sampled != nullptr && sampled->skipped) {
    row.num_planned -= count;  // it had ended: nothing was computed
  } else {
    HEDDLE_CHECK_EQ(sequence.num_computed, planned.context_tokens);
    sequence.num_computed += count;
    if (!planned.feeds_drawn_token) prefilled_tokens_ += count;
    const bool released = row.leaving == Leaving::kDone || row.leaving == Leaving::kAborted;
    // A step in flight that feeds the token computes it, whoever asked for it.
    const bool fed = row.draws_in_flight > 0;
    if (sampled != nullptr && sampled->error.ok() && (!released || fed)) {
      sequence.tokens.push_back(sampled->token);
      fair_.charge_output(row.tenant, 1);
    }
    cache_.confirm(sequence, row.hold);
  }
  if (row.leaving != Leaving::kNo && row.steps_in_flight == 0) give_back(planned.batch_slot);
}

// ---- Leaving ----

void BatchScheduler::leave(int32_t row, Leaving how) {
  Row& leaving = rows_[static_cast<size_t>(row)];
  leaving.leaving = how;
  if (leaving.steps_in_flight == 0) give_back(row);
}

void BatchScheduler::give_back(int32_t index) {
  Row& row = rows_[static_cast<size_t>(index)];
  Sequence& sequence = *row.sequence;
  const Leaving how = row.leaving;
  const bool returns =
      how == Leaving::kRetracted || how == Leaving::kPreempted || how == Leaving::kPaused;
  if (returns && how != Leaving::kPaused) retracted_tokens_ += sequence.num_computed;
  cache_.release(sequence, row.hold,
                 how == Leaving::kAborted ? cache::PrefixCache::Keep::kPublished
                                          : cache::PrefixCache::Keep::kEnd);
  sequence.batch_slot = -1;
  if (returns) {
    if (how == Leaving::kRetracted) {
      ++num_retractions_;
      ++sequence.num_retractions;
    } else if (how == Leaving::kPreempted) {
      ++num_preemptions_;
      ++sequence.num_preemptions;
    }
    sequence.status = SequenceStatus::kWaiting;
    fair_.give_back(row.tenant);
    waiting_.push_back({.sequence = &sequence,
                        .returned = true,
                        .alone = row.returns_alone,
                        .tenant = row.tenant,
                        .urgency = row.urgency,
                        .short_of_room = true,  // it takes a row that is free now
                        .prefilled_at_arrival = prefilled_tokens_});
  } else {
    sequence.status = SequenceStatus::kFinished;
    fair_.leave_running(row.tenant);
    admission_paused_ = false;
  }
  running_.erase(std::find(running_.begin(), running_.end(), index));
  free_rows_.push_back(index);
  row.sequence = nullptr;
  row.leaving = Leaving::kNo;
  row.returns_alone = false;
  if (running_.empty()) {
    ratio_.reset();
    admission_paused_ = false;
  }
}

void BatchScheduler::retract_all() {
  HEDDLE_CHECK(plans_in_flight_.empty());
  while (!running_.empty()) leave(running_.back(), Leaving::kPaused);
}

void BatchScheduler::release(Sequence& sequence, Ending ending) {
  switch (sequence.status) {
    case SequenceStatus::kNew:
      sequence.status = SequenceStatus::kFinished;
      break;
    case SequenceStatus::kWaiting: {
      const auto found = std::find_if(waiting_.begin(), waiting_.end(), [&](const Queued& queued) {
        return queued.sequence == &sequence;
      });
      HEDDLE_CHECK(found != waiting_.end());
      fair_.leave_waiting(found->tenant, found->returned);
      waiting_.erase(found);
      sequence.status = SequenceStatus::kFinished;
      break;
    }
    case SequenceStatus::kRunning:
      sequence.status = SequenceStatus::kEnding;
      leave(sequence.batch_slot, ending == Ending::kDone ? Leaving::kDone : Leaving::kAborted);
      break;
    case SequenceStatus::kEnding:
      break;
    case SequenceStatus::kFinished:
      // Whoever ends a displaced sequence before asking for it may destroy it now.
      std::erase_if(displaced_,
                    [&](const Dropped& dropped) { return dropped.sequence == &sequence; });
      break;
  }
}

void BatchScheduler::take_dropped(std::vector<Dropped>& dropped) {
  dropped.insert(dropped.end(), displaced_.begin(), displaced_.end());
  displaced_.clear();
  if (!any_time_limits_) return;
  const double now = clock_->now_seconds();
  Status reason;
  for (const Queued& queued : waiting_) {
    if (out_of_time(*queued.sequence, !queued.returned, now, reason)) {
      dropped.push_back({.sequence = queued.sequence, .reason = reason});
    }
  }
  for (const int32_t index : running_) {
    const Row& row = rows_[static_cast<size_t>(index)];
    if (row.leaving == Leaving::kDone || row.leaving == Leaving::kAborted) continue;
    if (out_of_time(*row.sequence, false, now, reason)) {
      dropped.push_back({.sequence = row.sequence, .reason = reason});
    }
  }
}

bool BatchScheduler::out_of_time(const Sequence& sequence, bool queued, double now,
                                 Status& reason) const {
  const double elapsed = now - sequence.timings.submit_seconds;
  const SchedulingOptions& limits = options_.scheduling;
  const Request& request = sequence.request;
  if (request.deadline_seconds > 0 && request.waited_seconds + elapsed > request.deadline_seconds) {
    reason = timed_out(fmt::format("deadline_exceeded: the request asked for an answer within {} s",
                                   request.deadline_seconds));
    return true;
  }
  if (queued) {
    if (limits.queue_timeout_seconds <= 0 || elapsed <= limits.queue_timeout_seconds) return false;
    reason = timed_out(fmt::format("queue_timeout: the request waited longer than {} s",
                                   limits.queue_timeout_seconds));
    return true;
  }
  const double started = sequence.timings.first_step_seconds;
  if (limits.running_timeout_seconds <= 0 || started < 0 ||
      now - started <= limits.running_timeout_seconds) {
    return false;
  }
  reason = timed_out(fmt::format("running_timeout: the request ran longer than {} s",
                                 limits.running_timeout_seconds));
  return true;
}

// ---- Books ----

SchedulerStats BatchScheduler::stats() const {
  int64_t queued = 0;
  const double now = clock_->now_seconds();
  double oldest = now;
  for (const Queued& entry : waiting_) {
    if (entry.returned) continue;
    ++queued;
    oldest = std::min(oldest, entry.sequence->timings.submit_seconds);
  }
  const cache::PrefixCacheStats cached = cache_.stats();
  return {.num_waiting = std::ssize(waiting_),
          .num_queued = queued,
          .oldest_wait_seconds = now - oldest,
          .num_running = std::ssize(running_),
          .num_places = num_places(),
          .num_retractions = num_retractions_,
          .num_preemptions = num_preemptions_,
          .retracted_tokens = retracted_tokens_,
          .deferred_sequences = num_deferred_,
          .new_token_ratio = ratio_.value(),
          .kv_tokens_used = (cached.pages_used - cached.pages_cached) * options_.cache.page_size,
          .cache = cached};
}

void BatchScheduler::check_invariants() const {
  HEDDLE_CHECK_LE(std::ssize(running_), int64_t{options_.max_running});
  HEDDLE_CHECK_EQ(std::ssize(running_) + std::ssize(free_rows_), std::ssize(rows_));
  std::vector<cache::PrefixCache::Held> held;
  for (const int32_t index : running_) {
    const Row& row = rows_[static_cast<size_t>(index)];
    HEDDLE_CHECK(row.sequence != nullptr);
    const Sequence& sequence = *row.sequence;
    HEDDLE_CHECK_EQ(sequence.batch_slot, index);
    const bool ending = row.leaving == Leaving::kDone || row.leaving == Leaving::kAborted;
    HEDDLE_CHECK(sequence.status == (ending ? SequenceStatus::kEnding : SequenceStatus::kRunning));
    HEDDLE_CHECK(row.leaving == Leaving::kNo || row.steps_in_flight > 0);
    HEDDLE_CHECK_GE(row.steps_in_flight, 0);
    HEDDLE_CHECK_LE(int64_t{row.steps_in_flight}, std::ssize(plans_in_flight_));
    HEDDLE_CHECK_LE(sequence.num_computed, row.num_planned);
    HEDDLE_CHECK_LE(row.num_planned, sequence.num_tokens() + row.draws_in_flight);
    held.push_back({.sequence = &sequence, .hold = &row.hold});
  }
  for (const Queued& queued : waiting_) {
    HEDDLE_CHECK(queued.sequence->status == SequenceStatus::kWaiting);
    HEDDLE_CHECK(queued.sequence->pages.empty() && queued.sequence->state_slot == 0);
    HEDDLE_CHECK_EQ(queued.sequence->num_computed, 0);
    HEDDLE_CHECK_EQ(queued.sequence->batch_slot, -1);
  }
  cache_.check_invariants(held);
}

}  // namespace heddle::scheduler
