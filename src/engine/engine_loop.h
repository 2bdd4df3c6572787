// SPDX-License-Identifier: Apache-2.0
// EngineLoop: the Engine behind Engine::create(). Its thread joins the parts of the engine:
//
// - Inbox (inbox.h): messages of other threads to the engine thread.
// - Stepper (stepper.h): the accepted requests, and the steps that compute them.
// - ControlCalls (control_calls.h): pauses, clears of the cache, inspections.
// - WeightExchange (weight_exchange.h): replaces the weights in use.
// - Activity (activity.h): publishes the state of the engine thread to other threads.
//
// A round of the engine thread reads the messages in the inbox, carries out control calls, then
// plans one step and processes the output of one.
//
// Failures: a step that fails, an output that does not fit the plan or an exception thrown by a
// library ends all requests with kError. The engine then refuses new ones; health() returns the
// reason.
//
// A paused loop computes no steps. It still accepts and cancels requests and ends those whose time
// limit has passed.
//
// Threading:  the functions of Engine are thread-safe; an idle loop sleeps. Drive::kManual starts
//             no threads: everything is confined to the thread that calls step(), and time passes
//             only as the clock is moved.
// Cost:       a decode step allocates no memory of its own once its vectors have grown.
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
#include "engine/adapter_slots.h"
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
  kThread,  // the loop starts an engine thread
  kManual,  // no thread: the owner calls step()
};

// Times of the engine's start, for metrics.
struct StartTimes {
  double began_seconds = 0;  // when the start began, on the engine's clock
  double load_seconds = 0;   // how long loading the model took
};

struct EngineParts {
  std::unique_ptr<runner::Runner> runner;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: requests and answers are token ids only
  ModelInfo info;
  MemoryPlan plan;
  // The options that the loop uses itself; the runner was created from the others.
  EngineOptions options;
  // Called after the watchdog has logged a hang; empty: abort the process.
  std::function<void()> on_stuck;
  const Clock* clock = nullptr;                     // outlives the loop; null: the machine's clock
  std::unique_ptr<scheduler::Scheduler> scheduler;  // null: a BatchScheduler with `options`
  std::unique_ptr<speculative::Drafter> drafter;    // null: chosen by options.speculative
  std::optional<StartTimes> start;
  Drive drive = Drive::kThread;  // the watchdog only runs with kThread
};

class EngineLoop final : public Engine {
 public:
  // `parts.runner` is not null (checked). The context length is cut to what the KV pool holds.
  // Errors: kInvalidArgument naming an option, its value and the allowed values; kResourceExhausted
  // when the system cannot start a thread.
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

  Result<std::shared_ptr<const Adapter>> load_adapter(
      const std::filesystem::path& folder) override {
    return adapter_slots_.load(
        [&](int32_t slot) { return stepper_.runner().load_adapter(slot, folder); });
  }

  void set_step_delay(double seconds) override { stepper_.set_step_delay(seconds); }

  [[nodiscard]] const EngineOptions& options() const override { return options_; }

  [[nodiscard]] const ModelInfo& model_info() const override { return info_; }

  [[nodiscard]] const MemoryPlan& memory_plan() const override { return memory_plan_; }

  [[nodiscard]] const tokenizer::Tokenizer* tokenizer() const override { return tokenizer_.get(); }

  // Drive::kManual only: runs one round. Returns false when nothing is left to run.
  bool step();

  // Text for the log when the engine hangs: steps in flight, counters, requests.
  [[nodiscard]] std::string describe() const;

  // Rounds begun since the start. An idle loop begins none, however long it waits.
  [[nodiscard]] int64_t num_rounds() const { return num_rounds_.load(std::memory_order_relaxed); }

  // Drive::kManual only: the scheduler checks its invariants and aborts if one is broken.
  void check_invariants() const { stepper_.scheduler().check_invariants(); }

 private:
  // The parts that create() makes before it constructs the loop.
  struct Made {
    std::unique_ptr<const Clock> own_clock;  // null if EngineParts has a clock
    std::unique_ptr<scheduler::Scheduler> scheduler;
    std::unique_ptr<EngineMetrics> metrics;  // null: metrics are off
    int64_t pool_tokens = 0;                 // capacity of the KV pool in tokens
  };

  EngineLoop(EngineParts parts, Made made);

  void start_threads();

  // Any thread: turns a request into a LiveRequest in `arrivals`, or returns why it cannot be
  // served.
  Status prepare(Request request, EventCallback on_event, Arrivals& arrivals) const;
  Status refused(Status status, size_t num_requests);

  // The functions below run on the engine thread.
  void run_thread();
  [[nodiscard]] Inbox::Sleep sleep() const;
  void run_round();
  void take_mail();
  int64_t abort_all(bool for_drain = false);

  // The members below do not change after construction.
  const std::unique_ptr<const Clock> own_clock_;
  const Clock& clock_;
  const EngineOptions options_;
  const ModelInfo info_;
  const MemoryPlan memory_plan_;
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  const int64_t max_at_once_;   // most requests per call
  const Status out_of_memory_;  // allocated early: later memory for it may be short

  // The members below are thread-safe.
  const std::unique_ptr<EngineMetrics> metrics_;  // null: metrics are off
  Inbox inbox_;
  Activity activity_;
  StepRecorder step_recorder_;
  AdapterSlots adapter_slots_;
  std::atomic<int64_t> num_rounds_{0};

  // The members below are used by the engine thread only, except the stepper's set_step_delay(),
  // the scheduler's check_*() and the runner's load_adapter().
  Stepper stepper_;
  ControlCalls control_calls_;
  WeightExchange weight_exchange_;
  Mail mail_;  // messages that an interrupted round did not process

  // Last: the threads start when all members above exist.
  const std::function<void()> on_stuck_;
  std::thread thread_;
  std::unique_ptr<WatchdogThread> watchdog_;
};

}  // namespace heddle::engine
