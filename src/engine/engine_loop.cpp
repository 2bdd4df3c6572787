// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"
#include "engine/scheduler_setup.h"
#include "request/validate.h"
#include "sampling/uniform_draw.h"

namespace heddle::engine {

using request::PlannedSequence;
using request::SampledToken;
using request::StepOutput;

namespace {

constexpr int kAttempts = 3;
constexpr int64_t kMaxClears = 64;  // that wait for the engine to be idle

Status status_of(const std::exception& error, const Status& out_of_memory) {
  try {
    return internal_error(fmt::format("a step threw: {}", error.what()));
  } catch (const std::exception&) {
    return out_of_memory;
  }
}

}  // namespace

Result<std::unique_ptr<EngineLoop>> EngineLoop::create(EngineParts parts) {
  HEDDLE_CHECK(parts.runner != nullptr);
  const Drive drive = parts.drive;
  HEDDLE_RETURN_IF_ERROR(parse_metric_names(parts.metrics.names).status());
  HEDDLE_ASSIGN_OR_RETURN(
      scheduler::BatchSchedulerOptions options,
      scheduler_options(parts.scheduling, parts.cache, parts.runner->pool_sizes()));
  options.chunked_prefill_tokens = parts.chunked_prefill_tokens;
  options.max_queued = parts.max_queued_requests;
  options.random_seed = parts.random_seed;
  std::unique_ptr<EngineLoop> loop(new EngineLoop(std::move(parts)));
  HEDDLE_ASSIGN_OR_RETURN(loop->scheduler_,
                          scheduler::BatchScheduler::create(options, *loop->clock_));
  if (drive == Drive::kThread) {
    try {
      loop->thread_ = std::thread([raw = loop.get()] { raw->run_thread(); });
    } catch (const std::system_error& error) {
      return resource_exhausted(fmt::format("no thread for the engine: {}", error.what()));
    }
  }
  return loop;
}

EngineLoop::EngineLoop(EngineParts parts)
    : clock_(parts.clock != nullptr ? parts.clock : &steady_clock_),
      info_(std::move(parts.info)),
      memory_plan_(parts.plan),
      tokenizer_(std::move(parts.tokenizer)),
      runner_(std::move(parts.runner)),
      page_size_(runner_->pool_sizes().page_size),
      max_queued_(parts.max_queued_requests),
      overlap_(parts.scheduling.overlap),
      by_priority_(parts.scheduling.enable_priority || parts.scheduling.policy == "priority"),
      out_of_memory_(resource_exhausted("a step ran out of host memory")),
      step_log_(runner_->pool_sizes().num_pages * runner_->pool_sizes().page_size),
      seed_state_(parts.random_seed) {
  const runner::PoolSizes& sizes = runner_->pool_sizes();
  if (parts.metrics.enabled) {
    metrics_ = std::make_unique<EngineMetrics>(
        parse_metric_names(parts.metrics.names).value(),
        parts.metrics.model_name.empty() ? info_.name : parts.metrics.model_name,
        MetricsCapacity{.kv_tokens = sizes.num_pages * sizes.page_size,
                        .page_size = sizes.page_size,
                        .state_slots = sizes.num_state_slots + sizes.num_frozen_slots});
  }
  inbox_.reserve(static_cast<size_t>(max_queued_));
  taken_.reserve(static_cast<size_t>(max_queued_));
  const int64_t pool_tokens = sizes.num_pages * sizes.page_size;
  if (info_.context_length > pool_tokens) {
    log_warning(
        fmt::format("the KV pool holds {} tokens, less than the model's context of {}: requests "
                    "are limited to it",
                    pool_tokens, info_.context_length));
    info_.context_length = pool_tokens;
  }
}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    refusing_ = true;
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  } else if (scheduler_ != nullptr) {  // else create() failed half way
    abort_all();
  }
  end_clears(unavailable("the engine has ended"));
}

Status EngineLoop::submit(Request request, EventCallback on_event) {
  const Status status = accept(std::move(request), std::move(on_event));
  if (!status.ok() && metrics_ != nullptr) metrics_->on_refused(status);
  return status;
}

Status EngineLoop::accept(Request request, EventCallback on_event) {
  HEDDLE_RETURN_IF_ERROR(request::validate_request(
      request, {.vocab_size = info_.vocab_size, .context_length = info_.context_length}));
  if (tokenizer_ == nullptr && !request.stop.texts.empty()) {
    return invalid_argument("stop texts need a tokenizer, and this engine has none");
  }
  const bool has_seed = request.sampling.seed.has_value();
  auto live = std::make_unique<LiveRequest>(std::move(request), 0, info_.eos_token_ids,
                                            tokenizer_.get(), std::move(on_event));
  request::Sequence& sequence = live->sequence;
  HEDDLE_RETURN_IF_ERROR(scheduler_->check_fits(sequence));
  sequence.timings.submit_seconds = clock_->now_seconds();
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) {
      return unavailable(fmt::format("the engine has stopped: {}", failure_.message()));
    }
    if (refusing_) return unavailable("the engine is shutting down");
    if (by_id_.count(sequence.request.id) != 0) {
      return invalid_argument(
          fmt::format("a request with the id \"{}\" is still running", sequence.request.id));
    }
    // With priorities the scheduler decides: an urgent arrival may take somebody else's place.
    const int64_t waiting = std::ssize(inbox_) + (by_priority_ ? 0 : num_queued_);
    if (waiting >= max_queued_) {
      return resource_exhausted(
          fmt::format("{} requests are waiting, max_queued_requests = {}; try again later", waiting,
                      max_queued_));
    }
    by_id_.emplace(sequence.request.id, live.get());  // may throw; from here on nothing does
    if (num_unfinished_ == 0) busy_since_ = sequence.timings.submit_seconds;
    ++num_unfinished_;
    sequence.id = next_sequence_id_++;
    seed_state_ += 0x9e3779b97f4a7c15u;
    sequence.seed = has_seed ? *sequence.request.sampling.seed : sampling::mix64(seed_state_);
    inbox_.push_back(std::move(live));  // within its capacity
  }
  wake_.notify_one();
  return {};
}

void EngineLoop::cancel(const std::string& request_id) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = by_id_.find(request_id);
    if (found == by_id_.end() || found->second->cancel_requested) return;
    cancels_.push_back(found->second->sequence.id);
    found->second->cancel_requested = true;
  }
  wake_.notify_one();
}

int64_t EngineLoop::drain(double timeout_seconds) {
  std::unique_lock lock(mutex_);
  refusing_ = true;
  if (!thread_.joinable()) {
    lock.unlock();
    const double deadline = clock_->now_seconds() + timeout_seconds;
    while (clock_->now_seconds() < deadline && step()) {
    }
    return abort_all();
  }
  const auto finished = [this] { return num_unfinished_ == 0; };
  // A bound that the clock's arithmetic can carry.
  const std::chrono::duration<double> timeout(timeout_seconds > 0 ? std::min(timeout_seconds, 1e6)
                                                                  : 0.0);
  if (idle_.wait_for(lock, timeout, finished)) return 0;
  const int64_t aborted_before = num_aborted_by_drain_;
  abort_requested_ = true;
  wake_.notify_one();
  idle_.wait(lock, finished);  // at most the step in flight
  return num_aborted_by_drain_ - aborted_before;
}

Status EngineLoop::health() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::string EngineLoop::metrics_text() const {
  return metrics_ != nullptr ? metrics_->to_text() : std::string();
}

void EngineLoop::clear_cache(double timeout_seconds, std::function<void(Status)> on_done) {
  const double deadline = clock_->now_seconds() + timeout_seconds;
  Status refusal;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok() || refusing_) {
      refusal = unavailable("the engine is shutting down");
    } else if (std::ssize(clears_) + num_clears_taken_ >= kMaxClears) {
      refusal = unavailable(fmt::format("{} requests to clear the cache wait already", kMaxClears));
    } else {
      clears_.push_back({deadline, timeout_seconds, std::move(on_done)});
    }
  }
  if (!refusal.ok()) {
    on_done(std::move(refusal));
  } else {
    wake_.notify_one();
  }
}

EngineStats EngineLoop::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.num_waiting += std::ssize(inbox_);
  if (num_unfinished_ > 0) {
    const double since = std::max(last_step_end_, busy_since_);
    stats.last_step_seconds_ago = std::max(clock_->now_seconds() - since, 0.0);
  }
  return stats;
}

// ---- The engine thread ----

void EngineLoop::run_thread() {
  for (;;) {
    bool abort_everything = false;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] {
        return stopping_ || abort_requested_ || !live_.empty() || num_in_flight_ > 0 ||
               !inbox_.empty() || !cancels_.empty() || !clears_.empty() || num_clears_taken_ > 0;
      });
      if (stopping_) break;
      abort_everything = std::exchange(abort_requested_, false);
    }
    if (abort_everything) {
      aborting_for_drain_ = true;
      abort_all();
      aborting_for_drain_ = false;
      continue;
    }
    step_guarded();
  }
  abort_all();
}

bool EngineLoop::step() {
  HEDDLE_CHECK(!thread_.joinable());
  step_guarded();
  return !live_.empty() || num_in_flight_ > 0;
}

// Libraries may throw, first of all for want of memory. That must end requests, not the process:
// the step is given up, and the next round ends what is live. Ending can be repeated, so it is
// tried again should it throw as well.
void EngineLoop::step_guarded() {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      take_inbox();
      take_clears();
      if (!failure_.ok()) {
        finish_all({.reason = FinishReason::kError, .error = failure_});
      } else if (!live_.empty() || num_in_flight_ > 0) {
        run_step();
      }
      return;
    } catch (const std::bad_alloc&) {
      set_failure(out_of_memory_);
    } catch (const std::exception& error) {
      set_failure(status_of(error, out_of_memory_));
    }
  }
}

int64_t EngineLoop::abort_all() {
  int64_t count = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      take_inbox();
      count += finish_all({.reason = FinishReason::kAbort});
      break;
    } catch (const std::exception&) {  // nothing but memory can be missing here
      set_failure(out_of_memory_);
    }
  }
  return count;
}

void EngineLoop::take_inbox() {
  if (taken_.empty() && taken_cancels_.empty()) {  // else an earlier round was cut short
    const std::lock_guard lock(mutex_);
    std::swap(taken_, inbox_);
    std::swap(taken_cancels_, cancels_);
    num_arriving_ = std::ssize(taken_);
    num_queued_ += num_arriving_;
  }
  for (std::unique_ptr<LiveRequest>& arrival : taken_) {
    if (arrival == nullptr) continue;
    LiveRequest& live = *arrival;
    live_.emplace(live.sequence.id, std::move(arrival));
    --num_arriving_;
    if (Status status = scheduler_->submit(live.sequence); !status.ok()) {
      finish(live, {.reason = FinishReason::kError, .error = std::move(status)});
    }
  }
  taken_.clear();
  for (const int64_t sequence_id : taken_cancels_) {
    const auto found = live_.find(sequence_id);
    if (found != live_.end()) finish(*found->second, {.reason = FinishReason::kAbort});
  }
  taken_cancels_.clear();
}

// Clears the cache for those who asked, if nothing is left to do; tells the ones whose time is up.
void EngineLoop::take_clears() {
  {
    const std::lock_guard lock(mutex_);
    std::move(clears_.begin(), clears_.end(), std::back_inserter(taken_clears_));
    clears_.clear();
    num_clears_taken_ = std::ssize(taken_clears_);
  }
  if (taken_clears_.empty()) return;
  if (live_.empty() && num_in_flight_ == 0) {
    scheduler_->clear_cache();
    publish();
    end_clears({});
    return;
  }
  const double now = clock_->now_seconds();
  const auto late =
      std::stable_partition(taken_clears_.begin(), taken_clears_.end(),
                            [now](const ClearRequest& request) { return now < request.deadline; });
  for (auto request = late; request != taken_clears_.end(); ++request) {
    request->on_done(timed_out(fmt::format(
        "the cache is in use: {} requests run or wait; send it again when they are done, or with a "
        "longer timeout than {} s",
        live_.size(), request->timeout_seconds)));
  }
  taken_clears_.erase(late, taken_clears_.end());
}

void EngineLoop::end_clears(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    std::move(clears_.begin(), clears_.end(), std::back_inserter(taken_clears_));
    clears_.clear();
    num_clears_taken_ = 0;
  }
  for (const ClearRequest& request : std::exchange(taken_clears_, {})) request.on_done(status);
}

// Keeps one step ahead: the next step is planned and handed over before the running one is waited
// for.
void EngineLoop::run_step() {
  take_dropped();
  const bool launched = launch_step();
  const bool full = num_in_flight_ == (overlap_ ? plans_.size() : 1);
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

// Requests whose time is up, or whose place went to somebody more urgent.
void EngineLoop::take_dropped() {
  dropped_.clear();
  scheduler_->take_dropped(dropped_);
  for (scheduler::Dropped& dropped : dropped_) {
    const auto found = live_.find(dropped.sequence->id);
    if (found == live_.end()) continue;
    finish(*found->second, {.reason = FinishReason::kError, .error = std::move(dropped.reason)});
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
  if (metrics_ != nullptr) metrics_->show(scheduled);
  const std::lock_guard lock(mutex_);
  num_queued_ = scheduled.num_queued + num_arriving_;
  stats_.num_running = scheduled.num_running;
  stats_.num_waiting = scheduled.num_waiting;
  stats_.kv_tokens_used = scheduled.kv_tokens_used;
  stats_.state_slots_used = scheduled.cache.state_slots_used - scheduled.cache.state_slots_cached;
  stats_.steps = steps_;
  stats_.prompt_tokens = prompt_tokens_;
  stats_.output_tokens = output_tokens_;
  last_step_end_ = step_end_;
  return scheduled;
}

}  // namespace heddle::engine
