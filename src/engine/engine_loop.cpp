// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_loop.h"

#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"
#include "core/no_thread.h"
#include "engine/scheduler_setup.h"
#include "request/refusal.h"
#include "request/validate.h"
#include "runner/load/model_runner.h"

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
                    .pages_of_windows = sizes.num_pages_of_windows(),
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
                          scheduler_options(parts.options, sizes, parts.runner->step_limits()));
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
      return no_thread("for the engine", error);
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
      adapter_slots_(options_.adapters.num_slots),
      stepper_(
          std::move(parts.runner), std::move(made.scheduler),
          {.inbox = inbox_,
           .activity = activity_,
           .recorder = step_recorder_,
           .metrics = metrics_.get()},
          clock_,
          {.pipeline = {.overlap = options_.scheduling.overlap, .vocab_size = info_.vocab_size},
           .context_length = info_.context_length,
           .pool_tokens = made.pool_tokens,
           .on_failure = options_.on_failure}),
      control_calls_(stepper_, inbox_, clock_),
      weight_exchange_(stepper_, inbox_, parts.drive == Drive::kThread, [this] { inbox_.wake(); }),
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
  take_mail();
  const Status ended = unavailable("the engine has ended");
  control_calls_.refuse(ended);
  weight_exchange_.refuse(ended);
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
    status = stepper_.scheduler().check_call(sequences);
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
  if (request.adapter != nullptr) {
    HEDDLE_RETURN_IF_ERROR(adapter_slots_.check(*request.adapter));
  }
  auto live = std::make_unique<LiveRequest>(std::move(request), 0, info_.eos_token_ids,
                                            tokenizer_.get(), std::move(on_event));
  HEDDLE_RETURN_IF_ERROR(stepper_.scheduler().check_fits(live->sequence));
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
    if (orders.abort_all) abort_all(/*for_drain=*/true);
    run_round();  // runs even after abort_all(), so that the calls in the last mail are answered
  }
  abort_all();
}

// How long the thread may sleep. While paused, only the time limits of requests and pending clear
// calls need attention.
Inbox::Sleep EngineLoop::sleep() const {
  if (weight_exchange_.waiting()) return Inbox::Sleep::kNone;
  if (stepper_.empty() && !control_calls_.waiting()) return Inbox::Sleep::kLong;
  return stepper_.paused() ? Inbox::Sleep::kShort : Inbox::Sleep::kNone;
}

bool EngineLoop::step() {
  HEDDLE_CHECK(!thread_.joinable());
  run_round();
  return !stepper_.empty() || weight_exchange_.waiting();
}

// Libraries may throw, mostly when memory runs out. That must end requests, not the process. The
// failed attempt abandons its step, and the next attempt ends all requests. If that throws too, it
// is repeated.
void EngineLoop::run_round() {
  num_rounds_.fetch_add(1, std::memory_order_relaxed);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      take_mail();
      control_calls_.run();
      weight_exchange_.run();
      if (stepper_.failed()) {
        stepper_.finish_all({.reason = FinishReason::kError, .error = inbox_.failure()});
      } else {
        stepper_.step();
      }
      stepper_.check_when_idle();
      return;
    } catch (const std::bad_alloc&) {
      stepper_.set_failed(out_of_memory_);
    } catch (const std::exception& error) {
      stepper_.set_failed(status_of(error, out_of_memory_));
    }
  }
}

void EngineLoop::take_mail() {
  inbox_.take(mail_);
  stepper_.add(mail_.arrivals);
  stepper_.cancel(mail_.cancelled);
  mail_.cancelled.clear();
  control_calls_.add(mail_);
  weight_exchange_.add(mail_);
}

int64_t EngineLoop::abort_all(bool for_drain) {
  int64_t count = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    try {
      take_mail();
      stepper_.abort_all(count, for_drain);
      break;
    } catch (const std::exception&) {  // only an allocation can have failed here
      stepper_.set_failed(out_of_memory_);
    }
  }
  return count;
}

}  // namespace heddle::engine
