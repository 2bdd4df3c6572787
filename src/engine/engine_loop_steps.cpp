// SPDX-License-Identifier: Apache-2.0
// The steps of the loop: planned, handed over, booked, told.
#include <algorithm>
#include <functional>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"
#include "engine/engine_loop.h"

namespace heddle::engine {

using request::PlannedSequence;
using request::SampledToken;
using request::StepOutput;

// Keeps one step ahead: the next step is planned and handed over before the running one is waited
// for.
void EngineLoop::run_step() {
  take_dropped();
  const bool launched = launch_step();
  const bool full = num_in_flight_ == (options_.scheduling.overlap ? plans_.size() : 1);
  if (num_in_flight_ > 0) {
    if (full || !launched) finish_step();
  } else if (!launched && !live_.empty()) {
    fail(internal_error(fmt::format("{} requests are live, but none can run", live_.size())));
  }
}

// Plans a step and hands it to the runner. False if there is nothing to run now.
bool EngineLoop::launch_step() {
  request::BatchPlan& plan = plans_[next_plan_];
  const double planning_since = clock_->now_seconds();
  scheduler_->plan(plan);
  if (plan.empty()) return false;
  StepFacts& facts = facts_[next_plan_];
  next_plan_ = (next_plan_ + 1) % plans_.size();
  ++num_in_flight_;
  now_ = clock_->now_seconds();
  if (metrics_ != nullptr) metrics_->on_planned(now_ - planning_since);
  facts = {.launched_seconds = now_};
  for (const PlannedSequence& planned : plan.sequences) {
    request::Sequence& sequence = live_.at(planned.sequence_id)->sequence;
    if (planned.feeds_drawn_token || sequence.decoding()) {
      ++facts.decode_sequences;
      facts.decode_context += planned.context_tokens;
    } else {
      facts.prefill_tokens += planned.num_new_tokens();
    }
    if (sequence.timings.first_step_seconds >= 0) continue;
    sequence.timings.first_step_seconds = now_;
    prompt_tokens_ += sequence.num_prompt_tokens;
    ++facts.new_sequences;
    facts.cached_tokens += sequence.cache_report.reused_tokens;
    if (metrics_ != nullptr) {
      metrics_->on_started(sequence, now_ - sequence.timings.submit_seconds);
    }
  }
  {
    const std::lock_guard lock(mutex_);
    show_steps_in_flight();
  }
  if (Status status = runner_->submit(plan); !status.ok()) {
    --num_in_flight_;
    next_plan_ = (next_plan_ + plans_.size() - 1) % plans_.size();
    drop_steps();
    scheduler_->abandon(plan);
    fail(status);
  }
  return true;
}

// Waits for the oldest step in flight and hands out its news.
void EngineLoop::finish_step() {
  const size_t oldest = (next_plan_ + plans_.size() - num_in_flight_) % plans_.size();
  const request::BatchPlan& plan = plans_[oldest];
  --num_in_flight_;
  // Whatever goes wrong until the output is there, the step is over.
  std::unique_ptr<const request::BatchPlan, std::function<void(const request::BatchPlan*)>>
      unfinished(&plan, [this](const request::BatchPlan* lost) { scheduler_->abandon(*lost); });
  Result<StepOutput> output = runner_->wait();
  now_ = clock_->now_seconds();
  if (Status status = output.ok() ? check_output(plan, *output) : output.status(); !status.ok()) {
    unfinished.reset();
    fail(status);
    return;
  }
  unfinished.release();
  scheduler_->complete(plan, *output);
  ++steps_;
  facts_[oldest].seconds = now_ - std::max(facts_[oldest].launched_seconds, step_end_);
  step_end_ = now_;
  size_t next = 0;
  for (const PlannedSequence& planned : plan.sequences) {
    SampledToken* const sampled = planned.sample ? &output->tokens[next++] : nullptr;
    const auto found = live_.find(planned.sequence_id);
    if (found == live_.end()) continue;  // answered meanwhile
    // When it ends here, it is gone, and with it what `planned` points at.
    LiveRequest& live = *found->second;
    if (sampled != nullptr) {
      take_token(live, *sampled);
    } else if (!live.sequence.wants_tokens() && live.sequence.num_pending() == 0) {
      finish(live, {.reason = FinishReason::kLength});
    }
  }
  runner_->recycle(std::move(*output));
  forget_ended();
  const scheduler::SchedulerStats scheduled = publish();
  step_log_.on_step(facts_[oldest], scheduled);
  if (metrics_ != nullptr) {
    metrics_->on_step(facts_[oldest], step_log_.decode_tokens_per_second());
  }
}

// After a failure: the steps still in flight are waited for and forgotten.
void EngineLoop::drop_steps() {
  while (num_in_flight_ > 0) {
    const request::BatchPlan& plan =
        plans_[(next_plan_ + plans_.size() - num_in_flight_) % plans_.size()];
    (void)runner_->wait();
    --num_in_flight_;
    scheduler_->abandon(plan);
  }
  forget_ended();
}

// Requests whose time is up, or whose place went to somebody more urgent. Who has begun to answer
// keeps what was said; who has not is refused.
void EngineLoop::take_dropped() {
  dropped_.clear();
  scheduler_->take_dropped(dropped_);
  for (scheduler::Dropped& dropped : dropped_) {
    const auto found = live_.find(dropped.sequence->id);
    if (found == live_.end()) continue;
    const bool answering = dropped.sequence->num_output_tokens() > 0;
    finish(*found->second, {.reason = answering ? FinishReason::kAbort : FinishReason::kError,
                            .error = std::move(dropped.reason)});
  }
}

void EngineLoop::forget_ended() {
  std::erase_if(ended_, [](const std::unique_ptr<LiveRequest>& live) {
    return live->sequence.status == request::SequenceStatus::kFinished;
  });
}

Status EngineLoop::check_output(const request::BatchPlan& plan, const StepOutput& output) const {
  size_t next = 0;
  for (const PlannedSequence& planned : plan.sequences) {
    if (!planned.sample) continue;
    if (next == output.tokens.size()) break;
    const SampledToken& sampled = output.tokens[next++];
    if (sampled.sequence_id != planned.sequence_id) {
      return internal_error(fmt::format("the runner answered for sequence {} where {} was planned",
                                        sampled.sequence_id, planned.sequence_id));
    }
    if (sampled.error.ok() && !sampled.skipped &&
        (sampled.token < 0 || sampled.token >= info_.vocab_size)) {
      return internal_error(fmt::format("the runner drew token {} of a vocabulary of {}",
                                        sampled.token, info_.vocab_size));
    }
  }
  const auto planned =
      std::count_if(plan.sequences.begin(), plan.sequences.end(),
                    [](const PlannedSequence& sequence) { return sequence.sample; });
  if (planned != std::ssize(output.tokens)) {
    return internal_error(
        fmt::format("the runner drew {} tokens, {} were planned", output.tokens.size(), planned));
  }
  return {};
}

void EngineLoop::take_token(LiveRequest& live, SampledToken& sampled) {
  if (!sampled.error.ok()) {
    finish(live, {.reason = FinishReason::kError, .error = std::move(sampled.error)});
    return;
  }
  request::Sequence& sequence = live.sequence;
  ++output_tokens_;
  if (sequence.timings.first_token_seconds < 0) sequence.timings.first_token_seconds = now_;
  if (metrics_ != nullptr) {
    if (live.last_token_seconds < 0) {
      metrics_->on_first_token(now_ - sequence.timings.submit_seconds);
    } else {
      metrics_->on_next_token(now_ - live.last_token_seconds);
    }
  }
  live.last_token_seconds = now_;
  event_.tokens.assign(1, sampled.token);
  event_.text.clear();
  event_.logprobs.clear();
  if (sequence.request.return_logprobs) event_.logprobs.push_back(std::move(sampled.logprob));
  event_.finish = live.take_token(sampled.token, info_.context_length, event_.text);
  if (event_.finish) scheduler_->release(sequence, scheduler::Ending::kDone);
  deliver(live);
}

// Ends a request outside take_token(): nothing new but what was held back.
void EngineLoop::finish(LiveRequest& live, Finish finish) {
  scheduler_->release(live.sequence, finish.reason == FinishReason::kLength
                                         ? scheduler::Ending::kDone
                                         : scheduler::Ending::kAborted);
  event_.tokens.clear();
  event_.text.clear();
  event_.logprobs.clear();
  live.flush(event_.text);
  event_.finish = std::move(finish);
  now_ = clock_->now_seconds();
  deliver(live);
}

// Hands `event_` to the request's owner; after its final event the request is gone.
void EngineLoop::deliver(LiveRequest& live) {
  const request::Sequence& sequence = live.sequence;
  const request::SequenceTimings& timings = sequence.timings;
  event_.prompt_tokens = sequence.num_prompt_tokens;
  event_.completion_tokens = sequence.num_output_tokens();
  event_.cached_tokens = sequence.cache_report.reused_tokens;
  event_.cache = sequence.cache_report;
  event_.queue_seconds =
      (timings.first_step_seconds < 0 ? now_ : timings.first_step_seconds) - timings.submit_seconds;
  event_.first_token_seconds =
      timings.first_token_seconds < 0 ? 0 : timings.first_token_seconds - timings.submit_seconds;
  event_.elapsed_seconds = now_ - timings.submit_seconds;
  const bool final = event_.finish.has_value();
  if (final && metrics_ != nullptr) metrics_->on_finished(sequence, event_);
  if (final) {  // from here on the id is free again, also for a submit() inside the callback
    const std::lock_guard lock(mutex_);
    by_id_.erase(sequence.request.id);
  }
  if (live.on_event) {
    try {
      live.on_event(event_);
    } catch (const std::exception& error) {
      log_error(fmt::format("the callback of request \"{}\" threw: {}", sequence.request.id,
                            error.what()));
    } catch (...) {
      log_error(fmt::format("the callback of request \"{}\" threw", sequence.request.id));
    }
  }
  if (!final) return;
  const auto node = live_.extract(sequence.id);
  if (sequence.status != request::SequenceStatus::kFinished) {
    ended_.push_back(std::move(node.mapped()));
  }
  publish();
  const std::lock_guard lock(mutex_);
  if (aborting_for_drain_) ++num_aborted_by_drain_;
  if (--num_unfinished_ == 0) idle_.notify_all();
}

int64_t EngineLoop::finish_all(const Finish& reason) {
  int64_t count = 0;
  while (!live_.empty()) {
    // In order of arrival, which a map does not keep.
    const auto oldest = std::min_element(
        live_.begin(), live_.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    finish(*oldest->second, reason);
    ++count;
  }
  drop_steps();
  publish();
  return count;
}

void EngineLoop::set_failure(const Status& status) {
  const std::lock_guard lock(mutex_);
  if (failure_.ok()) failure_ = status;
}

void EngineLoop::fail(const Status& status) {
  set_failure(status);
  log_error(fmt::format("the engine stops: {}", status.to_string()));
  finish_all({.reason = FinishReason::kError, .error = status});
}

scheduler::SchedulerStats EngineLoop::publish() {
  const scheduler::SchedulerStats scheduled = scheduler_->stats();
  if (metrics_ != nullptr) metrics_->show(scheduled, paused_ ? std::ssize(live_) : 0);
  const std::lock_guard lock(mutex_);
  num_queued_ = scheduled.num_queued + num_arriving_;
  num_places_ = scheduled.num_places;
  stats_.num_running = scheduled.num_running;
  stats_.num_waiting = scheduled.num_waiting;
  stats_.kv_tokens_used = scheduled.kv_tokens_used;
  stats_.state_slots_used = scheduled.cache.state_slots_used - scheduled.cache.state_slots_cached;
  stats_.steps = steps_;
  stats_.prompt_tokens = prompt_tokens_;
  stats_.output_tokens = output_tokens_;
  stats_.decode_tokens_per_second = step_log_.decode_tokens_per_second();
  last_step_end_ = step_end_;
  show_steps_in_flight();
  return scheduled;
}

void EngineLoop::show_steps_in_flight() {
  num_steps_in_flight_ = num_in_flight_;
  for (size_t i = 0; i < num_in_flight_; ++i) {
    steps_in_flight_[i] = facts_[(next_plan_ + plans_.size() - num_in_flight_ + i) % plans_.size()];
  }
}

}  // namespace heddle::engine
