// SPDX-License-Identifier: Apache-2.0
// EngineLoop: the Engine behind Engine::create(). Its thread joins the parts of the engine:
//
// - Inbox (inbox.h): what other threads leave for it.
// - Stepper (stepper.h): the requests it has taken, and the steps that compute them.
// - ControlCalls (control_calls.h): pauses, clears of the cache, inspections.
// - WeightExchange (weight_exchange.h): other weights take the place of those in use.
// - Activity (activity.h): what the thread is doing, for other threads.
//
// A round takes the mail, carries out control calls, then plans one step and processes one.
//
// When things go wrong: a step that fails, an output that does not fit the plan or an exception of
// a library end all requests with kError, and the engine refuses new ones: health() says why.
//
// A paused loop computes nothing and does the rest: it takes requests, cancels them, ends those
// that are out of time.
//
// Threading:  the functions of Engine are thread-safe; an idle loop sleeps. Drive::kManual starts
//             no thread: then everything is confined to the thread that calls step(), and time
//             stands still unless the clock is moved.
// Cost:       a step of decoding allocates nothing of its own once its vectors have grown.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <heddle/engine.h>

#include "core/clock.h"
#include "engine/activity.h"
#include "engine/control_calls.h"
#include "engine/engine_metrics.h"
#include "engine/inbox.h"
#include "engine/step_recorder.h"
#include "engine/stepper.h"
#include "engine/watchdog.h"
#include "engine/weight_exchange.h"
#include "runner/runner.h"
#include "scheduler/scheduler.h"
#include "speculative/drafter.h"
#include "tokenizer/tokenizer.h"

namespace heddle::engine {

enum class Drive {
  kThread,  // a separate engine thread
  kManual,  // the owner calls step()
};

// How the start went, for metrics.
struct StartTimes {
  double began_seconds = 0;  // engine clock
  double load_seconds = 0;   // how long the model took
};

struct EngineParts {
  std::unique_ptr<runner::Runner> runner;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: token ids in and out only
  ModelInfo info;
  MemoryPlan plan;
  // The options that the loop uses itself; the runner was created from the others.
  EngineOptions options;
  std::function<void()> on_stuck;                   // after the watchdog's log; empty: abort
  const Clock* clock = nullptr;                     // outlives the loop; null: the machine's
  std::unique_ptr<scheduler::Scheduler> scheduler;  // null: a BatchScheduler made of the options
  std::unique_ptr<speculative::Drafter> drafter;    // null: chosen by options.speculative
  std::optional<StartTimes> start;
  Drive drive = Drive::kThread;  // only with a thread there is a watchdog
};

class EngineLoop final : public Engine {
 public:
  // `parts.runner` is there (checked). The context length becomes at most what the KV pool holds.
  // Errors: kInvalidArgument naming an option, its value and what it may be; kResourceExhausted
  // when the system has no thread to give.
  static Result<std::unique_ptr<EngineLoop>> create(EngineParts parts);

  ~EngineLoop() override;

  Status submit(Request request, EventCallback on_event) override;
  Status submit_all(std::vector<Request> requests, BatchCallback on_event) override;
  [[nodiscard]] Status check_call_size(size_t num_requests) const override;

  void cancel(const std::string& request_id) override { inbox_.cancel(request_id); }

  int64_t drain(double timeout_seconds) override;
  [[nodiscard]] EngineStats stats() const override;

  [[nodiscard]] Status health() const override { return inbox_.failure(); }

  [[nodiscard]] std::string metrics_text() const override;
  void clear_cache(double timeout_seconds, std::function<void(Status)> on_done) override;
  void pause(PauseMode mode, std::function<void(Status)> on_done) override;
  void resume(std::function<void(Status)> on_done) override;
  void update_weights(WeightUpdate update,
                      std::function<void(Result<WeightsUpdated>)> on_done) override;
  void inspect(InspectionOptions options, std::function<void(Result<Inspection>)> on_done) override;

  Status record_steps(int64_t max_steps, StepsCallback on_done) override {
    return step_recorder_.start(max_steps, std::move(on_done));
  }

  Status stop_recording() override { return step_recorder_.stop(); }

  void set_step_delay(double seconds) override { stepper_.set_step_delay(seconds); }

  [[nodiscard]] const EngineOptions& options() const override { return options_; }

  [[nodiscard]] const ModelInfo& model_info() const override { return info_; }

  [[nodiscard]] const MemoryPlan& memory_plan() const override { return memory_plan_; }

  [[nodiscard]] const tokenizer::Tokenizer* tokenizer() const override { return tokenizer_.get(); }

  // Drive::kManual only: one round. False when nothing is left to run.
  bool step();

  // A text for the log when nothing moves any more: steps in flight, counters, requests.
  [[nodiscard]] std::string describe() const;

  // Rounds that were begun since the start. An idle loop does none, however long it waits.
  [[nodiscard]] int64_t num_rounds() const { return num_rounds_.load(std::memory_order_relaxed); }

  // Drive::kManual only: the scheduler proves its invariants or aborts.
  void check_invariants() const { stepper_.scheduler().check_invariants(); }

 private:
  // The parts that create() makes before the loop.
  struct Made {
    std::unique_ptr<const Clock> own_clock;  // null if the parts have a clock
    std::unique_ptr<scheduler::Scheduler> scheduler;
    std::unique_ptr<EngineMetrics> metrics;  // null: off
    int64_t pool_tokens = 0;                 // capacity of the KV pool in tokens
  };

  EngineLoop(EngineParts parts, Made made);

  void start_threads();

  // Any thread: makes a live request of it, if it can be served at all.
  Status prepare(Request request, EventCallback on_event, Arrivals& arrivals) const;
  Status refused(Status status, size_t num_requests);

  // The engine thread.
  void run_thread();
  [[nodiscard]] Inbox::Sleep sleep() const;
  void run_round();
  void take_mail();
  int64_t abort_all(bool for_drain = false);

  // Constant after construction.
  const std::unique_ptr<const Clock> own_clock_;
  const Clock& clock_;
  const EngineOptions options_;
  const ModelInfo info_;
  const MemoryPlan memory_plan_;
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  const int64_t max_at_once_;   // requests per call
  const Status out_of_memory_;  // made in time: later there may be no memory for it

  // Thread-safe.
  const std::unique_ptr<EngineMetrics> metrics_;  // null: off
  Inbox inbox_;
  Activity activity_;
  StepRecorder step_recorder_;
  std::atomic<int64_t> num_rounds_{0};

  // Engine thread only, except the stepper's set_step_delay() and the scheduler's check_*().
  Stepper stepper_;
  ControlCalls control_calls_;
  WeightExchange weight_exchange_;
  Mail mail_;  // mail that a round which was cut short did not process

  // Last: the threads start when all members above exist.
  const std::function<void()> on_stuck_;
  std::thread thread_;
  std::unique_ptr<WatchdogThread> watchdog_;
};

}  // namespace heddle::engine
