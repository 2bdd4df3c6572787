// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <limits>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"
#include "engine/scheduler_setup.h"
#include "request/refusal.h"
#include "request/validate.h"
#include "sampling/uniform_draw.h"

namespace heddle::engine {

using request::PlannedSequence;
using request::SampledToken;
using request::StepOutput;

namespace {

constexpr int kAttempts = 3;
constexpr std::chrono::milliseconds kPausedPoll{50};  // whose time is up while nothing runs

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
  HEDDLE_RETURN_IF_ERROR(parse_metric_names(parts.options.metrics.names).status());
  HEDDLE_RETURN_IF_ERROR(settle_policy(parts.options));
  HEDDLE_ASSIGN_OR_RETURN(const scheduler::BatchSchedulerOptions options,
                          scheduler_options(parts.options, parts.runner->pool_sizes()));
  std::unique_ptr<EngineLoop> loop(new EngineLoop(std::move(parts)));
  HEDDLE_ASSIGN_OR_RETURN(loop->scheduler_,
                          scheduler::BatchScheduler::create(options, *loop->clock_));
  loop->num_places_ = loop->scheduler_->stats().num_places;
  loop->max_at_once_ = loop->options_.max_queued_requests + loop->num_places_;
  loop->inbox_.reserve(static_cast<size_t>(loop->max_at_once_));
  loop->taken_.reserve(static_cast<size_t>(loop->max_at_once_));
  if (drive == Drive::kThread) {
    try {
      loop->thread_ = std::thread([raw = loop.get()] { raw->run_thread(); });
      if (loop->options_.watchdog_seconds > 0) {
        loop->watchdog_ = std::thread([raw = loop.get()] { raw->run_watchdog(); });
      }
    } catch (const std::system_error& error) {
      return resource_exhausted(fmt::format("no thread for the engine: {}", error.what()));
    }
  }
  return loop;
}

EngineLoop::EngineLoop(EngineParts parts)
    : clock_(parts.clock != nullptr ? parts.clock : &steady_clock_),
      options_(std::move(parts.options)),
      info_(std::move(parts.info)),
      memory_plan_(parts.plan),
      tokenizer_(std::move(parts.tokenizer)),
      runner_(std::move(parts.runner)),
      page_size_(runner_->pool_sizes().page_size),
      on_stuck_(parts.on_stuck ? std::move(parts.on_stuck) : [] { std::abort(); }),
      out_of_memory_(resource_exhausted("a step ran out of host memory")),
      step_log_(runner_->pool_sizes().num_pages * runner_->pool_sizes().page_size),
      seed_state_(options_.random_seed) {
  const runner::PoolSizes& sizes = runner_->pool_sizes();
  if (const MetricsOptions& metrics = options_.metrics; metrics.enabled) {
    metrics_ = std::make_unique<EngineMetrics>(
        parse_metric_names(metrics.names).value(),
        metrics.model_name.empty() ? info_.name : metrics.model_name,
        MetricsCapacity{.kv_tokens = sizes.num_pages * sizes.page_size,
                        .page_size = sizes.page_size,
                        .state_slots = sizes.num_state_slots + sizes.num_frozen_slots});
  }
  const int64_t pool_tokens = sizes.num_pages * sizes.page_size;
  if (info_.context_length > pool_tokens) {
    log_warning(
        fmt::format("the KV pool holds {} tokens, less than the model's context of {}: requests "
                    "are limited to it",
                    pool_tokens, info_.context_length));
    info_.context_length = pool_tokens;
  }
  options_.context_length = info_.context_length;
}

EngineLoop::~EngineLoop() {
  {
    const std::lock_guard lock(mutex_);
    refusing_ = true;
    stopping_ = true;
  }
  wake_.notify_all();
  watchdog_wake_.notify_all();
  if (watchdog_.joinable()) watchdog_.join();
  if (thread_.joinable()) {
    thread_.join();
  } else if (scheduler_ != nullptr) {  // else create() failed half way
    abort_all();
  }
  const Status ended = unavailable("the engine has ended");
  end_clears(ended);
  end_controls(ended);
}

Status EngineLoop::submit(Request request, EventCallback on_event) {
  Arrivals arrivals;
  Status status = prepare(std::move(request), std::move(on_event), arrivals);
  if (status.ok()) status = enqueue(std::move(arrivals));
  return refused(std::move(status), 1);
}

Status EngineLoop::submit_all(std::vector<Request> requests, BatchCallback on_event) {
  const size_t count = requests.size();
  if (Status too_many = check_call_size(count); !too_many.ok()) {
    return refused(std::move(too_many), count);
  }
  const auto shared = std::make_shared<const BatchCallback>(std::move(on_event));
  Arrivals arrivals;
  arrivals.reserve(count);
  Status status;
  for (size_t i = 0; i < count && status.ok(); ++i) {
    status = prepare(
        std::move(requests[i]), [shared, i](const RequestEvent& event) { (*shared)(i, event); },
        arrivals);
  }
  if (status.ok()) {
    std::vector<const request::Sequence*> sequences;
    for (const std::unique_ptr<LiveRequest>& live : arrivals) sequences.push_back(&live->sequence);
    status = scheduler_->check_call(sequences);
  }
  if (status.ok()) status = enqueue(std::move(arrivals));
  return refused(std::move(status), count);
}

Status EngineLoop::check_call_size(size_t num_requests) const {
  if (num_requests <= static_cast<size_t>(max_at_once_)) return {};
  return request::refuse(
      request::kAnswersField,
      fmt::format("{} answers at once are more than this engine takes: {}, of which {} may wait "
                  "(max_queued_requests); send fewer in one call",
                  num_requests, max_at_once_, options_.max_queued_requests));
}

Status EngineLoop::refused(Status status, size_t num_requests) {
  if (!status.ok() && metrics_ != nullptr) {
    for (size_t i = 0; i < num_requests; ++i) metrics_->on_refused(status);
  }
  return status;
}

Status EngineLoop::prepare(Request request, EventCallback on_event, Arrivals& arrivals) const {
  HEDDLE_RETURN_IF_ERROR(request::validate_request(
      request, {.vocab_size = info_.vocab_size, .context_length = info_.context_length}));
  if (tokenizer_ == nullptr && !request.stop.texts.empty()) {
    return invalid_argument("stop texts need a tokenizer, and this engine has none");
  }
  auto live = std::make_unique<LiveRequest>(std::move(request), 0, info_.eos_token_ids,
                                            tokenizer_.get(), std::move(on_event));
  HEDDLE_RETURN_IF_ERROR(scheduler_->check_fits(live->sequence));
  arrivals.push_back(std::move(live));
  return {};
}

Status EngineLoop::enqueue(Arrivals arrivals) {
  const double now = clock_->now_seconds();
  {
    const std::lock_guard lock(mutex_);
    HEDDLE_RETURN_IF_ERROR(ended());
    // With priorities the scheduler decides: an urgent arrival may take somebody else's place.
    const int64_t max_queued = options_.max_queued_requests;
    const bool by_priority = options_.scheduling.enable_priority;
    const int64_t waiting = std::ssize(inbox_) + (by_priority ? 0 : num_queued_);
    const int64_t places = by_priority ? max_at_once_ - max_queued : num_places_;
    if (waiting + std::ssize(arrivals) > max_queued + places) {
      const std::string news =
          arrivals.size() == 1 ? "" : fmt::format(" and {} came at once", arrivals.size());
      return resource_exhausted(
          fmt::format("{} requests are waiting{}, max_queued_requests = {}; try again later",
                      std::max<int64_t>(waiting - places, 0), news, max_queued));
    }
    HEDDLE_RETURN_IF_ERROR(claim_ids(arrivals));  // may throw; from here on nothing does
    if (num_unfinished_ == 0) busy_since_ = now;
    num_unfinished_ += std::ssize(arrivals);
    const int64_t call = next_sequence_id_;
    for (std::unique_ptr<LiveRequest>& live : arrivals) {
      live->call = call;
      request::Sequence& sequence = live->sequence;
      sequence.timings.submit_seconds = now;
      sequence.id = next_sequence_id_++;
      seed_state_ += 0x9e3779b97f4a7c15u;
      sequence.seed = sequence.request.sampling.seed.value_or(sampling::mix64(seed_state_));
      inbox_.push_back(std::move(live));  // within its capacity
    }
  }
  wake_.notify_one();
  return {};
}

// Whether anything new is taken. The mutex is held, or it is known that the engine has failed.
Status EngineLoop::ended() const {
  if (!failure_.ok()) {
    return unavailable(fmt::format("the engine has stopped: {}", failure_.message()));
  }
  if (refusing_) return unavailable("the engine is shutting down");
  return {};
}

// Enters the arrivals in by_id_, all or none. The mutex is held.
Status EngineLoop::claim_ids(const Arrivals& arrivals) {
  size_t num_claimed = 0;
  const auto undo = [&] {
    for (size_t i = 0; i < num_claimed; ++i) by_id_.erase(arrivals[i]->sequence.request.id);
  };
  try {
    for (const std::unique_ptr<LiveRequest>& live : arrivals) {
      const std::string& id = live->sequence.request.id;
      if (!by_id_.emplace(id, live.get()).second) {
        undo();
        return invalid_argument(fmt::format("a request with the id \"{}\" is still running", id));
      }
      ++num_claimed;
    }
  } catch (...) {
    undo();
    throw;
  }
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
  controls_.push_back({.pause = std::nullopt, .on_done = [](const Status&) {}});
  wake_.notify_one();
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

EngineStats EngineLoop::stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.num_waiting += std::ssize(inbox_);
  stats.paused = paused_;
  if (num_unfinished_ > 0 && !paused_) {
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
      // While paused, the limits of time are all there is to do for those who wait.
      const auto has_work = [this] { return has_work_to_do(); };
      if (paused_ && (!live_.empty() || num_clears_taken_ > 0)) {
        wake_.wait_for(lock, kPausedPoll, has_work);
      } else {
        wake_.wait(lock, has_work);
      }
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

bool EngineLoop::has_work_to_do() const {
  const bool news = stopping_ || abort_requested_ || !inbox_.empty() || !cancels_.empty() ||
                    !controls_.empty() || !clears_.empty();
  return news || (!paused_ && (!live_.empty() || num_in_flight_ > 0 || num_clears_taken_ > 0));
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
      take_controls();
      take_clears();
      if (!failure_.ok()) {
        end_controls(ended());
        finish_all({.reason = FinishReason::kError, .error = failure_});
      } else if (paused_) {
        take_dropped();
        publish();
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
  call_.clear();
  int64_t call = 0;
  for (std::unique_ptr<LiveRequest>& arrival : taken_) {
    if (arrival == nullptr) continue;
    if (arrival->call != call) queue_call();
    call = arrival->call;
    call_.push_back(&arrival->sequence);
    live_.emplace(call_.back()->id, std::move(arrival));
    --num_arriving_;
  }
  queue_call();
  taken_.clear();
  for (const int64_t sequence_id : taken_cancels_) {
    const auto found = live_.find(sequence_id);
    if (found != live_.end()) finish(*found->second, {.reason = FinishReason::kAbort});
  }
  taken_cancels_.clear();
}

// Hands the requests of one call to the scheduler, which takes all of them or none.
void EngineLoop::queue_call() {
  if (call_.empty()) return;
  const Status status = scheduler_->submit_all(call_);
  for (const request::Sequence* sequence : call_) {
    if (status.ok()) break;
    finish(*live_.at(sequence->id), {.reason = FinishReason::kError, .error = status});
  }
  call_.clear();
}

}  // namespace heddle::engine
