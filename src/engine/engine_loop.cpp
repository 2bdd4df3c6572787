// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_loop.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iterator>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "cache/cache_view.h"
#include "core/check.h"
#include "core/log.h"
#include "engine/scheduler_setup.h"
#include "request/refusal.h"
#include "request/validate.h"
#include "runner/model_runner.h"

namespace heddle::engine {

namespace {

constexpr int kAttempts = 3;

Status status_of(const std::exception& error, const Status& out_of_memory) {
  try {
    return internal_error(fmt::format("a step threw: {}", error.what()));
  } catch (const std::exception&) {
    return out_of_memory;
  }
}

std::unique_ptr<EngineMetrics> make_metrics(const MetricsOptions& options,
                                            const std::string& model_name,
                                            const runner::PoolSizes& sizes,
                                            DraftAlgorithm algorithm) {
  if (!options.enabled) return nullptr;
  return std::make_unique<EngineMetrics>(
      options.names, options.model_name.empty() ? model_name : options.model_name,
      MetricsLimits{.kv_tokens = sizes.num_pages * sizes.page_size,
                    .page_size = sizes.page_size,
                    .state_slots = sizes.num_state_slots + sizes.num_snapshot_slots,
                    .window_pages = sizes.window_pages.num_pages,
                    .draft_algorithm = std::string(to_string(algorithm)),
                    .max_tenants = options.max_tenants});
}

}  // namespace

Result<std::unique_ptr<EngineLoop>> EngineLoop::create(EngineParts parts) {
  HEDDLE_CHECK(parts.runner != nullptr);
  const runner::PoolSizes& sizes = parts.runner->pool_sizes();
  HEDDLE_RETURN_IF_ERROR(check_metrics_options(parts.options.metrics));
  HEDDLE_RETURN_IF_ERROR(settle_policy(parts.options));
  HEDDLE_ASSIGN_OR_RETURN(scheduler::BatchSchedulerOptions options,
                          scheduler_options(parts.options, sizes));
  if (parts.drafter == nullptr) {
    parts.drafter = speculative::make_drafter(parts.options.speculative);
  }
  Made made;
  made.scheduler = std::move(parts.scheduler);
  if (parts.clock == nullptr) {
    made.own_clock = std::make_unique<SteadyClock>();
    parts.clock = made.own_clock.get();
  }
  if (made.scheduler == nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(made.scheduler, scheduler::BatchScheduler::create(
                                                options, *parts.clock, std::move(parts.drafter)));
  }
  const int64_t pool_tokens = made.pool_tokens = sizes.num_pages * sizes.page_size;
  if (parts.info.context_length > pool_tokens) {
    log_warning(
        fmt::format("the KV pool holds {} tokens, less than the model's context of {}: requests "
                    "are limited to it",
                    pool_tokens, parts.info.context_length));
    parts.info.context_length = pool_tokens;
  }
  parts.options.context_length = parts.info.context_length;
  made.metrics = make_metrics(parts.options.metrics, parts.info.name, sizes,
                              parts.options.speculative.algorithm);
  if (!parts.on_stuck) parts.on_stuck = [] { std::abort(); };

  if (made.metrics != nullptr && parts.start) {
    made.metrics->on_started(parts.start->load_seconds,
                             parts.clock->now_seconds() - parts.start->began_seconds);
  }

  const Drive drive = parts.drive;
  std::unique_ptr<EngineLoop> loop(new EngineLoop(std::move(parts), std::move(made)));
  if (drive == Drive::kThread) {
    try {
      loop->start_threads();
    } catch (const std::system_error& error) {
      return resource_exhausted(fmt::format("no thread for the engine: {}", error.what()));
    }
  }
  return loop;
}

EngineLoop::EngineLoop(EngineParts parts, Made made)
    : own_clock_(std::move(made.own_clock)),
      clock_(*parts.clock),
      options_(std::move(parts.options)),
      info_(std::move(parts.info)),
      memory_plan_(parts.plan),
      tokenizer_(std::move(parts.tokenizer)),
      max_at_once_(options_.max_queued_requests + made.scheduler->stats().num_open_slots),
      out_of_memory_(resource_exhausted("a step ran out of host memory")),
      metrics_(std::move(made.metrics)),
      inbox_(clock_,
             {.max_queued = options_.max_queued_requests,
              .num_batch_slots = made.scheduler->stats().num_open_slots,
              .by_priority = options_.scheduling.enable_priority},
             options_.random_seed),
      activity_(options_.watchdog_seconds),
      scheduler_(std::move(made.scheduler)),
      delivery_(*scheduler_, inbox_, metrics_.get(), clock_, info_.context_length),
      pipeline_(std::move(parts.runner), *scheduler_, activity_, clock_,
                {.overlap = options_.scheduling.overlap, .vocab_size = info_.vocab_size}),
      step_log_(made.pool_tokens),
      weight_reader_(parts.drive == Drive::kThread, [this] { inbox_.wake(); }),
      on_stuck_(std::move(parts.on_stuck)) {}

void EngineLoop::start_threads() {
  thread_ = std::thread([this] { run_thread(); });
  if (options_.watchdog_seconds <= 0) return;
  watchdog_ = std::make_unique<WatchdogThread>(
      options_.watchdog_seconds,
      [this](Watchdog& watchdog) {
        const double now = clock_.now_seconds();
        const Inbox::Load load = inbox_.load();
        const EngineStats stats = activity_.stats(load, now);
        const bool works = load.num_unfinished > 0 && !stats.paused && inbox_.failure().ok();
        return watchdog.look(now, stats.steps, works, activity_.stretch());
      },
      [this] {
        log_error(fmt::format("no step has ended for {:.0f} s while requests wait. {}",
                              options_.watchdog_seconds * activity_.stretch(), describe()));
        on_stuck_();
      });
}

EngineLoop::~EngineLoop() {
  watchdog_.reset();
  inbox_.stop();
  if (thread_.joinable()) {
    thread_.join();
  } else {
    abort_all();
  }
  inbox_.take(mail_);
  const Status ended = unavailable("the engine has ended");
  answer_clears(ended);
  answer_update(ended);
  answer_pauses(ended);
  answer_inspections(ended);
}

// ---- Any thread ----

Status EngineLoop::submit(Request request, EventCallback on_event) {
  Arrivals arrivals;
  Status status = prepare(std::move(request), std::move(on_event), arrivals);
  if (status.ok()) status = inbox_.submit(std::move(arrivals));
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
        std::move(requests[i]),
        [shared, i](RequestEvent&& event) { (*shared)(i, std::move(event)); }, arrivals);
  }
  if (status.ok()) {
    std::vector<const request::Sequence*> sequences;
    for (const std::unique_ptr<LiveRequest>& live : arrivals) sequences.push_back(&live->sequence);
    status = scheduler_->check_call(sequences);
  }
  if (status.ok()) status = inbox_.submit(std::move(arrivals));
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
  if (tokenizer_ == nullptr && !(request.stop.texts.empty() && request.stop.patterns.empty())) {
    return invalid_argument("stop texts and patterns need a tokenizer, and this engine has none");
  }
  auto live = std::make_unique<LiveRequest>(std::move(request), 0, info_.eos_token_ids,
                                            tokenizer_.get(), std::move(on_event));
  HEDDLE_RETURN_IF_ERROR(scheduler_->check_fits(live->sequence));
  arrivals.push_back(std::move(live));
  return {};
}

int64_t EngineLoop::drain(double timeout_seconds) {
  inbox_.begin_drain();
  if (thread_.joinable()) return inbox_.finish_drain(timeout_seconds);
  const double deadline = clock_.now_seconds() + timeout_seconds;
  while (clock_.now_seconds() < deadline && step()) {
  }
  return abort_all();
}

EngineStats EngineLoop::stats() const {
  return activity_.stats(inbox_.load(), clock_.now_seconds());
}

std::string EngineLoop::metrics_text() const {
  return metrics_ != nullptr ? metrics_->to_text() : std::string();
}

void EngineLoop::clear_cache(double timeout_seconds, std::function<void(Status)> on_done) {
  inbox_.clear_cache({.deadline = clock_.now_seconds() + timeout_seconds,
                      .timeout_seconds = timeout_seconds,
                      .on_done = std::move(on_done)});
}

void EngineLoop::pause(PauseMode mode, std::function<void(Status)> on_done) {
  inbox_.pause({.mode = mode, .on_done = std::move(on_done)});
}

void EngineLoop::resume(std::function<void(Status)> on_done) {
  inbox_.pause({.mode = std::nullopt, .on_done = std::move(on_done)});
}

void EngineLoop::update_weights(WeightUpdate update,
                                std::function<void(Result<WeightsUpdated>)> on_done) {
  if (options_.exact && !update.flush_cache) {
    return on_done(invalid_argument(
        "flush_cache is false, but the engine is exact: what its cache holds is of the old weights "
        "and answers from it would be of both; flush it"));
  }
  inbox_.update_weights({.update = std::move(update), .on_done = std::move(on_done)});
}

void EngineLoop::inspect(InspectionOptions options,
                         std::function<void(Result<Inspection>)> on_done) {
  InspectionCall call{.options = std::move(options), .prompt = {}, .on_done = std::move(on_done)};
  if (!call.options.prompt.empty()) {
    Request request;
    request.prompt = std::move(call.options.prompt);
    request.cache_namespace = call.options.cache_namespace;
    call.prompt =
        std::make_unique<request::Sequence>(0, std::move(request), 0, std::span<const TokenId>());
  }
  inbox_.inspect(std::move(call));
}

std::string EngineLoop::describe() const {
  return activity_.describe(clock_.now_seconds()) + inbox_.describe();
}

// ---- The engine thread: rounds ----

void EngineLoop::run_thread() {
  for (;;) {
    const Inbox::Orders orders = inbox_.wait(sleep());
    if (orders.stop) break;
    if (orders.abort_all) {
      abort_all(/*for_drain=*/true);
    } else {
      run_round();
    }
  }
  abort_all();
}

// In a pause only the time limits of requests and clear calls are left to watch.
Inbox::Sleep EngineLoop::sleep() const {
  if (new_weights_ != nullptr) return Inbox::Sleep::kNone;
  if (delivery_.empty() && pipeline_.empty() && mail_.clears.empty()) return Inbox::Sleep::kLong;
  return paused_ ? Inbox::Sleep::kShort : Inbox::Sleep::kNone;
}

bool EngineLoop::step() {
  HEDDLE_CHECK(!thread_.joinable());
  run_round();
  return !delivery_.empty() || !pipeline_.empty() || new_weights_ != nullptr;
}

// Libraries may throw, above all when memory runs out. That must end requests, not the process: the
// step is given up, and the next attempt ends all requests. Ending can be repeated, so it is tried
// again should it throw as well.
void EngineLoop::run_round() {
  num_rounds_.fetch_add(1, std::memory_order_relaxed);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      take_arrivals();
      take_pauses();
      take_clears();
      take_update();
      take_inspections();
      if (failed_) {
        answer_pauses(inbox_.closed());
        answer_update(inbox_.closed());
        finish_all({.reason = FinishReason::kError, .error = inbox_.failure()});
      } else if (paused_) {
        end_dropped();
        settle();
      } else if (!delivery_.empty() || !pipeline_.empty()) {
        run_step();
      }
      check_when_idle();
      return;
    } catch (const std::bad_alloc&) {
      set_failed(out_of_memory_);
    } catch (const std::exception& error) {
      set_failed(status_of(error, out_of_memory_));
    }
  }
}

void EngineLoop::check_when_idle() {
  if (!kChecksWhenIdle || !unchecked_ || !delivery_.empty() || !pipeline_.empty()) return;
  scheduler_->check_invariants();
  unchecked_ = false;
}

void EngineLoop::set_failed(const Status& status) {
  inbox_.fail(status);
  failed_ = true;
}

void EngineLoop::fail(const Status& status) {
  set_failed(status);
  log_error(fmt::format("the engine stops: {}", status.to_string()));
  finish_all({.reason = FinishReason::kError, .error = status});
}

void EngineLoop::finish_all(const Finish& finish) {
  delivery_.finish_all(finish);
  pipeline_.abandon_all();
  delivery_.free_ended();
  settle();
  if (!failed_ || std::exchange(failure_reported_, true)) return;
  if (options_.on_failure) options_.on_failure();
}

int64_t EngineLoop::abort_all(bool for_drain) {
  int64_t count = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      take_arrivals();
      count += delivery_.finish_all({.reason = FinishReason::kAbort});
      pipeline_.abandon_all();
      delivery_.free_ended();
      settle(for_drain ? count : 0);
      break;
    } catch (const std::exception&) {  // nothing but memory can be missing here
      set_failed(out_of_memory_);
    }
  }
  return count;
}

// Shows other threads the state after a change, and only then counts requests as ended: a drain
// that returns finds nothing in use.
scheduler::SchedulerStats EngineLoop::settle(int64_t num_aborted_by_drain) {
  const scheduler::SchedulerStats scheduled = scheduler_->stats();
  if (metrics_ != nullptr) metrics_->show(scheduled, paused_ ? delivery_.num_live() : 0);
  activity_.show(
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
  inbox_.show_queue(scheduled.num_queued, scheduled.num_open_slots);
  inbox_.on_ended(delivery_.take_num_ended(), num_aborted_by_drain);
  return scheduled;
}

// ---- The engine thread: mail ----

void EngineLoop::take_arrivals() {
  inbox_.take(mail_);
  call_.clear();
  int64_t call = 0;
  for (std::unique_ptr<LiveRequest>& arrival : mail_.arrivals) {
    if (arrival == nullptr) continue;  // an earlier attempt took it
    if (arrival->call != call) submit_call();
    call = arrival->call;
    call_.push_back(&delivery_.add(std::move(arrival)));
    unchecked_ = true;
  }
  submit_call();
  mail_.arrivals.clear();
  for (const int64_t sequence_id : mail_.cancelled) {
    delivery_.finish(sequence_id, {.reason = FinishReason::kAbort});
  }
  mail_.cancelled.clear();
  if (delivery_.num_ended() > 0) settle();
}

// Hands the requests of one call to the scheduler, which takes all of them or none.
void EngineLoop::submit_call() {
  if (call_.empty()) return;
  const Status status = scheduler_->submit_all(call_);
  for (const request::Sequence* sequence : call_) {
    if (status.ok()) break;
    delivery_.finish(sequence->id, {.reason = FinishReason::kError, .error = status});
  }
  call_.clear();
}

// A call that fails or throws stays in the mail; answer_pauses() answers it.
void EngineLoop::take_pauses() {
  while (!failed_ && !mail_.pauses.empty()) {
    apply_pause(mail_.pauses.front().mode);
    if (failed_) break;
    const PauseCall call = std::move(mail_.pauses.front());
    mail_.pauses.erase(mail_.pauses.begin());
    call.on_done({});
  }
}

// Does nothing more once a step has failed: an engine that ends is not paused.
void EngineLoop::apply_pause(std::optional<PauseMode> mode) {
  if (mode) {
    while (!failed_ && !pipeline_.empty()) finish_step();
    if (failed_) return;
    if (*mode == PauseMode::kAbort) finish_all({.reason = FinishReason::kAbort});
    if (*mode == PauseMode::kRetract) scheduler_->retract_all();
  }
  scheduler_->set_paused(mode.has_value());
  paused_ = mode.has_value();
  activity_.set_paused(paused_, clock_.now_seconds());
  settle();
}

void EngineLoop::answer_pauses(const Status& status) {
  for (const PauseCall& call : std::exchange(mail_.pauses, {})) call.on_done(status);
}

// Clears the cache if nothing uses it, and answers the calls that are out of time.
void EngineLoop::take_clears() {
  if (mail_.clears.empty()) return;
  const bool idle = delivery_.empty() || (paused_ && scheduler_->stats().num_running == 0);
  if (idle && pipeline_.empty()) {
    scheduler_->clear_cache();
    settle();
    answer_clears({});
    return;
  }
  const double now = clock_.now_seconds();
  const auto late =
      std::stable_partition(mail_.clears.begin(), mail_.clears.end(),
                            [now](const ClearCall& call) { return now < call.deadline; });
  const std::vector<ClearCall> expired(std::make_move_iterator(late),
                                       std::make_move_iterator(mail_.clears.end()));
  mail_.clears.erase(late, mail_.clears.end());
  inbox_.on_clears_answered(std::ssize(expired));
  for (const ClearCall& call : expired) {
    call.on_done(timed_out(fmt::format(
        "the cache is in use: {} requests run or wait; send it again when they are done, or with a "
        "longer timeout than {} s",
        delivery_.num_live(), call.timeout_seconds)));
  }
}

void EngineLoop::answer_clears(const Status& status) {
  const std::vector<ClearCall> calls = std::exchange(mail_.clears, {});
  inbox_.on_clears_answered(std::ssize(calls));
  for (const ClearCall& call : calls) call.on_done(status);
}

// Starts to read an update, and makes it when it is read and the requests before it have ended.
void EngineLoop::take_update() {
  if (failed_ || !mail_.update) return;
  if (new_weights_ == nullptr) {  // else requests wait for them
    if (Status closed = inbox_.closed(); !closed.ok()) return answer_update(std::move(closed));
  }
  if (new_weights_ == nullptr && !weight_reader_.busy()) {
    const WeightUpdate& update = mail_.update->update;
    log_info(fmt::format("reading the weights of {}", update.model_dir.string()));
    const Status started = weight_reader_.start(
        [&runner = pipeline_.runner(),
         folder = runner::WeightFolder{.model_dir = update.model_dir,
                                       .dummy = update.load_format == LoadFormat::kDummy}](
            const std::atomic<bool>& cancelled) { return runner.read_weights(folder, cancelled); });
    if (!started.ok()) return answer_update(started);
  }
  if (auto read = weight_reader_.take()) {
    if (!read->ok()) return answer_update(read->status());
    new_weights_ = std::move(*read).value();
  }
  if (new_weights_ != nullptr && ready_for_weights()) use_weights();
}

// Whether nothing is left that has to end with the old weights; sees to it that it does.
bool EngineLoop::ready_for_weights() {
  if (mail_.update->update.abort_all_requests) {
    while (!failed_ && !pipeline_.empty()) finish_step();
    if (failed_) return false;
    finish_all({.reason = FinishReason::kAbort});
  }
  if (paused_) return true;
  scheduler_->defer_arrivals(true);
  settle();
  return pipeline_.empty() && delivery_.num_live() == scheduler_->stats().num_deferred_arrivals;
}

void EngineLoop::use_weights() {
  const WeightUpdate& update = mail_.update->update;
  const int64_t num_paused = paused_ ? delivery_.num_live() : 0;
  if (update.flush_cache) {
    scheduler_->retract_all();
    scheduler_->clear_cache();
  }
  if (const Status status = pipeline_.use_weights(*new_weights_); !status.ok()) {
    return fail(status);
  }
  new_weights_.reset();
  delivery_.set_num_weight_updates(++num_weight_updates_);
  if (metrics_ != nullptr) metrics_->on_weights_updated();
  log_info(fmt::format("the weights are those of {} from now on", update.model_dir.string()));
  if (update.pause_after && !paused_) apply_pause(PauseMode::kInPlace);
  answer_update(
      WeightsUpdated{.num_paused_requests = num_paused, .num_weight_updates = num_weight_updates_});
}

// Ends an update, made or not.
void EngineLoop::answer_update(Result<WeightsUpdated> result) {
  if (!mail_.update) return;
  weight_reader_.cancel();
  new_weights_.reset();
  scheduler_->defer_arrivals(false);
  settle();
  const UpdateCall call = std::move(*mail_.update);
  mail_.update.reset();
  inbox_.on_update_answered();
  if (!result.ok() && result.status().code() != StatusCode::kUnavailable) {
    result = result.status().with_context(fmt::format(
        "the weights in use stay; those of {} cannot be used", call.update.model_dir.string()));
    log_warning(result.status().message());
  }
  call.on_done(std::move(result));
}

void EngineLoop::take_inspections() {
  if (failed_) return answer_inspections(inbox_.closed());
  for (const InspectionCall& call : std::exchange(mail_.inspections, {})) call.on_done(look(call));
}

// Memory that is missing for a copy must not end requests.
Result<Inspection> EngineLoop::look(const InspectionCall& call) const {
  try {
    Inspection inspection;
    delivery_.view_requests(call.options.max_requests, inspection);
    if (const cache::PrefixCache* const cache = scheduler_->prefix_cache(); cache != nullptr) {
      cache::view_cache(*cache, call.options, call.prompt.get(), inspection);
    }
    return inspection;
  } catch (const std::bad_alloc&) {
    return out_of_memory_;
  }
}

void EngineLoop::answer_inspections(const Status& status) {
  for (const InspectionCall& call : std::exchange(mail_.inspections, {})) call.on_done(status);
}

// ---- The engine thread: steps ----

// Keeps the pipeline full: the next step is launched before the running one is waited for.
void EngineLoop::run_step() {
  end_dropped();
  const bool launched = launch_step();
  if (!pipeline_.empty()) {
    if (pipeline_.full() || !launched) finish_step();
  } else if (!launched && delivery_.num_live() > scheduler_->stats().num_deferred_arrivals) {
    fail(internal_error(
        fmt::format("{} requests are live, but none can run", delivery_.num_live())));
  }
}

// Ends requests that timed out or were displaced by a higher priority. A request that has streamed
// tokens finishes with kAbort; one that has not gets an error.
void EngineLoop::end_dropped() {
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

// False if there is nothing to run now.
bool EngineLoop::launch_step() {
  const request::BatchPlan* const plan = pipeline_.plan();
  if (plan == nullptr) return false;
  if (const double delay = step_delay_seconds_.load(std::memory_order_relaxed); delay > 0) {
    std::this_thread::sleep_for(std::chrono::duration<double>(delay));
  }
  if (const Status status = pipeline_.launch(delivery_.start(*plan)); !status.ok()) fail(status);
  return true;
}

// Waits for the oldest step in flight and delivers its tokens.
void EngineLoop::finish_step() {
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
  step_recorder_.on_step(pipeline_.num_finished(), facts, stats);
  if (metrics_ != nullptr) {
    metrics_->on_step(facts, delivery_.num_streams(), step_log_.decode_tokens_per_second());
  }
}

}  // namespace heddle::engine
