// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"
#include "request/validate.h"
#include "sampling/uniform_draw.h"
#include "scheduler/fcfs_scheduler.h"

namespace heddle::engine {

using request::PlannedSequence;
using request::SampledToken;
using request::StepOutput;

namespace {

constexpr int kAttempts = 3;

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
  std::unique_ptr<EngineLoop> loop(new EngineLoop(std::move(parts)));
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
      scheduler_(std::move(parts.scheduler)),
      page_size_(runner_->pool_sizes().page_size),
      max_queued_(parts.max_queued_requests),
      out_of_memory_(resource_exhausted("a step ran out of host memory")),
      seed_state_(parts.random_seed) {
  const runner::PoolSizes& sizes = runner_->pool_sizes();
  if (scheduler_ == nullptr) {
    scheduler_ = std::make_unique<scheduler::FcfsScheduler>(
        scheduler::SchedulerOptions{.num_pages = sizes.num_pages,
                                    .page_size = sizes.page_size,
                                    .num_state_slots = sizes.num_state_slots,
                                    .needs_state = sizes.num_state_slots > 0,
                                    .max_running = sizes.max_step_sequences,
                                    .max_step_tokens = sizes.max_step_tokens,
                                    .chunked_prefill_tokens = parts.chunked_prefill_tokens,
                                    .max_queued = parts.max_queued_requests});
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
  } else {
    abort_all();
  }
}

Status EngineLoop::submit(Request request, EventCallback on_event) {
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
    const int64_t waiting = std::ssize(inbox_) + num_queued_;
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
        return stopping_ || abort_requested_ || !live_.empty() || !inbox_.empty() ||
               !cancels_.empty();
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
  return !live_.empty();
}

// Libraries may throw, first of all for want of memory. That must end requests, not the process:
// the step is given up, and the next round ends what is live. Ending can be repeated, so it is
// tried again should it throw as well.
void EngineLoop::step_guarded() {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      take_inbox();
      if (!failure_.ok()) {
        finish_all({.reason = FinishReason::kError, .error = failure_});
      } else if (!live_.empty()) {
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

void EngineLoop::run_step() {
  scheduler_->plan(plan_);
  if (plan_.sequences.empty()) {
    fail(internal_error(fmt::format("{} requests are live, but none can run", live_.size())));
    return;
  }
  now_ = clock_->now_seconds();
  for (const PlannedSequence& planned : plan_.sequences) {
    request::Sequence& sequence = live_.at(planned.sequence_id)->sequence;
    if (sequence.timings.first_step_seconds >= 0) continue;
    sequence.timings.first_step_seconds = now_;
    prompt_tokens_ += sequence.num_prompt_tokens;
  }

  Result<StepOutput> output = runner_->run(plan_);
  now_ = clock_->now_seconds();
  if (Status status = output.ok() ? check_output(*output) : output.status(); !status.ok()) {
    fail(status);
    return;
  }
  scheduler_->complete(plan_, *output);
  ++steps_;
  step_end_ = now_;
  size_t next = 0;
  for (const PlannedSequence& planned : plan_.sequences) {
    // Finished requests are gone, and with them what `planned` points at: only its values are used.
    LiveRequest& live = *live_.at(planned.sequence_id);
    if (planned.sample) {
      take_token(live, output->tokens[next++]);
    } else if (!live.sequence.wants_tokens() && live.sequence.num_pending() == 0) {
      finish(live, {.reason = FinishReason::kLength});
    }
  }
  runner_->recycle(std::move(*output));
  publish();
}

Status EngineLoop::check_output(const StepOutput& output) const {
  size_t next = 0;
  for (const PlannedSequence& planned : plan_.sequences) {
    if (!planned.sample) continue;
    if (next == output.tokens.size()) break;
    const SampledToken& sampled = output.tokens[next++];
    if (sampled.sequence_id != planned.sequence_id) {
      return internal_error(fmt::format("the runner answered for sequence {} where {} was planned",
                                        sampled.sequence_id, planned.sequence_id));
    }
    if (sampled.error.ok() && (sampled.token < 0 || sampled.token >= info_.vocab_size)) {
      return internal_error(fmt::format("the runner drew token {} of a vocabulary of {}",
                                        sampled.token, info_.vocab_size));
    }
  }
  const auto planned =
      std::count_if(plan_.sequences.begin(), plan_.sequences.end(),
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
  event_.tokens.assign(1, sampled.token);
  event_.text.clear();
  event_.logprobs.clear();
  if (sequence.request.return_logprobs) event_.logprobs.push_back(std::move(sampled.logprob));
  event_.finish = live.take_token(sampled.token, info_.context_length, event_.text);
  if (event_.finish) {
    scheduler_->release(sequence);
  }
  deliver(live);
}

// Ends a request outside take_token(): nothing new but what was held back.
void EngineLoop::finish(LiveRequest& live, Finish finish) {
  scheduler_->release(live.sequence);
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
  live_.erase(sequence.id);
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

void EngineLoop::publish() {
  const scheduler::SchedulerStats scheduled = scheduler_->stats();
  const std::lock_guard lock(mutex_);
  num_queued_ = scheduled.num_queued + num_arriving_;
  stats_.num_running = scheduled.num_running;
  stats_.num_waiting = scheduled.num_waiting;
  stats_.kv_tokens_used = scheduled.pages_used * page_size_;
  stats_.state_slots_used = scheduled.state_slots_used;
  stats_.steps = steps_;
  stats_.prompt_tokens = prompt_tokens_;
  stats_.output_tokens = output_tokens_;
  last_step_end_ = step_end_;
}

}  // namespace heddle::engine
