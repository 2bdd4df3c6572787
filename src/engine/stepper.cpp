// SPDX-License-Identifier: Apache-2.0
#include "engine/stepper.h"

#include <chrono>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"

namespace heddle::engine {

Stepper::Stepper(std::unique_ptr<runner::Runner> runner,
                 std::unique_ptr<scheduler::Scheduler> scheduler, const Shown& shown,
                 const Clock& clock, StepperOptions options)
    : shown_(shown),
      clock_(clock),
      on_failure_(std::move(options.on_failure)),
      scheduler_(std::move(scheduler)),
      delivery_(*scheduler_, shown.inbox, shown.metrics, clock, options.context_length),
      pipeline_(std::move(runner), *scheduler_, shown.activity, clock, options.pipeline),
      step_log_(options.pool_tokens) {}

// ---- Requests ----

void Stepper::add(Arrivals& arrivals) {
  call_.clear();
  int64_t call = 0;
  for (std::unique_ptr<LiveRequest>& arrival : arrivals) {
    if (arrival == nullptr) continue;  // an earlier attempt has added this request
    if (arrival->call != call) submit_call();
    call = arrival->call;
    call_.push_back(&delivery_.add(std::move(arrival)));
    unchecked_ = true;
  }
  submit_call();
  arrivals.clear();
  if (delivery_.num_ended() > 0) settle();
}

// Hands the requests of one call to the scheduler.
void Stepper::submit_call() {
  if (call_.empty()) return;
  const Status status = scheduler_->submit_all(call_);
  for (const request::Sequence* sequence : call_) {
    if (status.ok()) break;
    delivery_.finish(sequence->id, {.reason = FinishReason::kError, .error = status});
  }
  call_.clear();
}

void Stepper::cancel(std::span<const int64_t> sequence_ids) {
  for (const int64_t sequence_id : sequence_ids) {
    delivery_.finish(sequence_id, {.reason = FinishReason::kAbort});
  }
  if (delivery_.num_ended() > 0) settle();
}

void Stepper::finish_all(const Finish& finish) {
  delivery_.finish_all(finish);
  pipeline_.abandon_all();
  delivery_.free_ended();
  settle();
  if (!failed_ || std::exchange(failure_reported_, true)) return;
  if (on_failure_) on_failure_();
}

void Stepper::abort_all(int64_t& count, bool for_drain) {
  count += delivery_.finish_all({.reason = FinishReason::kAbort});
  pipeline_.abandon_all();
  delivery_.free_ended();
  settle(for_drain ? count : 0);
}

// ---- Steps ----

// A request that has streamed tokens finishes with kAbort; one that has not gets an error.
void Stepper::end_dropped() {
  dropped_.clear();
  scheduler_->take_dropped(dropped_);
  for (scheduler::Dropped& dropped : dropped_) {
    const bool answering = dropped.sequence->num_output_tokens() > 0;
    delivery_.finish(dropped.sequence->id,
                     {.reason = answering ? FinishReason::kAbort : FinishReason::kError,
                      .error = std::move(dropped.reason)});
  }
  if (delivery_.num_ended() > 0) settle();
}

// Keeps the pipeline full: the next step is launched before the running one is waited for.
void Stepper::step() {
  end_dropped();
  if (paused_) {
    settle();
    return;
  }
  if (empty()) return;
  const bool launched = launch_step();
  if (!pipeline_.empty()) {
    if (pipeline_.full() || !launched) finish_step();
  } else if (!launched && delivery_.num_live() > scheduler_->stats().num_deferred_arrivals) {
    fail(internal_error(
        fmt::format("{} requests are live, but none can run", delivery_.num_live())));
  }
}

// Plans and launches the next step. False if there is nothing to run now.
bool Stepper::launch_step() {
  const request::BatchPlan* const plan = pipeline_.plan();
  if (plan == nullptr) return false;
  if (const double delay = step_delay_seconds_.load(std::memory_order_relaxed); delay > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(delay));
  }
  if (const Status status = pipeline_.launch(delivery_.start(*plan)); !status.ok()) fail(status);
  return true;
}

// Waits for the oldest step in flight and delivers its tokens.
void Stepper::finish_step() {
  Result<FinishedStep> finished = pipeline_.wait();
  if (!finished.ok()) {
    fail(finished.status());
    return;
  }
  const StepFacts facts = finished->facts;
  delivery_.deliver(*finished->plan, finished->output, facts.end_seconds);
  pipeline_.recycle(std::move(*finished));
  delivery_.free_ended();
  step_log_.count(facts);
  const scheduler::SchedulerStats stats = settle();
  step_log_.on_step(facts, stats);
  shown_.recorder.on_step(pipeline_.num_finished(), facts, stats);
  if (shown_.metrics != nullptr) {
    shown_.metrics->on_step(facts, delivery_.num_streams(), step_log_.decode_tokens_per_second());
  }
}

void Stepper::finish_steps() {
  while (!failed_ && !pipeline_.empty()) finish_step();
}

void Stepper::set_paused(std::optional<PauseMode> mode) {
  if (mode) {
    finish_steps();
    if (failed_) return;
    if (*mode == PauseMode::kAbort) finish_all({.reason = FinishReason::kAbort});
    if (*mode == PauseMode::kRetract) scheduler_->retract_all();
  }
  scheduler_->set_paused(mode.has_value());
  paused_ = mode.has_value();
  shown_.activity.set_paused(paused_, clock_.now_seconds());
  settle();
}

// ---- Cache and weights ----

bool Stepper::clear_cache() {
  const bool unused = delivery_.empty() || (paused_ && scheduler_->stats().num_running == 0);
  if (!unused || !pipeline_.empty()) return false;
  scheduler_->clear_cache();
  settle();
  return true;
}

bool Stepper::hold_arrivals() {
  if (paused_) return true;
  scheduler_->defer_arrivals(true);
  settle();
  return pipeline_.empty() && delivery_.num_live() == scheduler_->stats().num_deferred_arrivals;
}

void Stepper::admit_arrivals() {
  scheduler_->defer_arrivals(false);
  settle();
}

Status Stepper::use_weights(const runner::NewWeights& weights, bool flush) {
  if (flush) {
    scheduler_->retract_all();
    scheduler_->clear_cache();
  }
  if (Status status = pipeline_.use_weights(weights); !status.ok()) {
    fail(status);
    return status;
  }
  delivery_.set_num_weight_updates(++num_weight_updates_);
  if (shown_.metrics != nullptr) shown_.metrics->on_weights_updated();
  return {};
}

// ---- Failure ----

void Stepper::set_failed(const Status& status) {
  shown_.inbox.fail(status);
  failed_ = true;
}

void Stepper::fail(const Status& status) {
  set_failed(status);
  log_error(fmt::format("the engine stops: {}", status.to_string()));
  finish_all({.reason = FinishReason::kError, .error = status});
}

void Stepper::check_when_idle() {
  if (!kChecksWhenIdle || !unchecked_ || !empty()) return;
  scheduler_->check_invariants();
  unchecked_ = false;
}

// Publishes the state to other threads after a change. Ended requests are counted last, so that a
// drain that returns finds nothing in use.
scheduler::SchedulerStats Stepper::settle(int64_t num_aborted_by_drain) {
  const scheduler::SchedulerStats scheduled = scheduler_->stats();
  if (shown_.metrics != nullptr) {
    shown_.metrics->show(scheduled, paused_ ? delivery_.num_live() : 0);
  }
  shown_.activity.show(
      {.num_running = scheduled.num_running,
       .num_waiting = scheduled.num_waiting,
       .waiting_tokens = scheduled.waiting_tokens,
       .kv_tokens_used = scheduled.kv_tokens_used,
       .state_slots_used = scheduled.cache.state_slots_used - scheduled.cache.state_slots_cached,
       .steps = pipeline_.num_finished(),
       .prompt_tokens = delivery_.prompt_tokens(),
       .output_tokens = delivery_.output_tokens(),
       .decode_steps = step_log_.decoded().steps,
       .draft_tokens = step_log_.decoded().draft_tokens,
       .accepted_drafts = step_log_.decoded().accepted_drafts,
       .decode_tokens_per_second = step_log_.decode_tokens_per_second(),
       .prefill_tokens_per_second = scheduled.prefill_tokens_per_second});
  shown_.inbox.show_queue(scheduled.num_queued, scheduled.num_open_slots);
  shown_.inbox.on_ended(delivery_.take_num_ended(), num_aborted_by_drain);
  return scheduled;
}

}  // namespace heddle::engine
