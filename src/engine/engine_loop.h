// SPDX-License-Identifier: Apache-2.0
// EngineLoop: the Engine behind Engine::create(). Its thread joins the parts of the engine:
//
// - Inbox (inbox.h): requests, cancellations and pauses from other threads.
// - Scheduler (scheduler/scheduler.h): which requests run in the next step.
// - StepPipeline (step_pipeline.h): plans on their way to the runner, and their outputs back.
// - Delivery (delivery.h): tokens become events; requests end.
// - WeightReader (weight_reader.h): other weights on their way into memory.
// - Activity (activity.h): what the thread is doing, for other threads.
//
// A round takes the mail, then plans one step and processes one. Steps overlap: while the runner
// computes one, the loop processes the one before and plans the next, so that the device never
// waits for the host. A request that ends is in one more step, which leaves it out or whose result
// for it is dropped. SchedulingOptions::overlap = false: one step at a time.
//
// When things go wrong: a step that fails, an output that does not fit the plan or an exception of
// a library end all requests with kError, and the engine refuses new ones: health() says why.
//
// A paused loop computes nothing and does the rest: it takes requests, cancels them, ends those
// that are out of time.
//
// An update of the weights is read beside the rounds. Then arrivals are deferred, and when all
// others have ended the new weights take the place of the old ones between two rounds: no step, and
// unless a pause has kept a request no answer, is of both.
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
#include "core/compiler.h"
#include "engine/activity.h"
#include "engine/delivery.h"
#include "engine/engine_metrics.h"
#include "engine/inbox.h"
#include "engine/step_log.h"
#include "engine/step_pipeline.h"
#include "engine/step_recorder.h"
#include "engine/watchdog.h"
#include "engine/weight_reader.h"
#include "runner/runner.h"
#include "scheduler/scheduler.h"
#include "speculative/drafter.h"
#include "tokenizer/tokenizer.h"

namespace heddle::engine {

enum class Drive {
  kThread,  // an engine thread of its own
  kManual,  // the owner calls step()
};

// Debug and sanitized builds: the scheduler proves its invariants whenever the last request has
// ended.
#if defined(NDEBUG) && !HEDDLE_SANITIZED
inline constexpr bool kChecksWhenIdle = false;
#else
inline constexpr bool kChecksWhenIdle = true;
#endif

// How the start went, for metrics.
struct StartTimes {
  double began_seconds = 0;  // on the engine's clock
  double load_seconds = 0;   // how long the model took
};

struct EngineParts {
  std::unique_ptr<runner::Runner> runner;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: token ids in and out only
  ModelInfo info;
  MemoryPlan plan;
  EngineOptions options;           // those of the loop; the runner was made of the rest
  std::function<void()> on_stuck;  // after the watchdog's log; empty: abort
  const Clock* clock = nullptr;    // outlives the loop; null: the machine's
  std::unique_ptr<scheduler::Scheduler> scheduler;  // null: a BatchScheduler made of the options
  std::unique_ptr<speculative::Drafter> drafter;    // null: that of options.speculative
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

  void set_step_delay(double seconds) override { step_delay_seconds_ = seconds; }

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
  void check_invariants() const { scheduler_->check_invariants(); }

 private:
  // The parts that create() makes before the loop.
  struct Made {
    std::unique_ptr<const Clock> own_clock;  // null: the parts have one
    std::unique_ptr<scheduler::Scheduler> scheduler;
    std::unique_ptr<EngineMetrics> metrics;  // null: off
    int64_t pool_tokens = 0;                 // that the KV pool holds
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
  void check_when_idle();
  void take_arrivals();
  void submit_call();
  void take_pauses();
  void apply_pause(std::optional<PauseMode> mode);
  void answer_pauses(const Status& status);
  void take_clears();
  void answer_clears(const Status& status);
  void take_update();
  [[nodiscard]] bool ready_for_weights();
  void use_weights();
  void answer_update(Result<WeightsUpdated> result);
  void take_inspections();
  [[nodiscard]] Result<Inspection> look(const InspectionCall& call) const;
  void answer_inspections(const Status& status);
  void run_step();
  void end_dropped();
  [[nodiscard]] bool launch_step();
  void finish_step();
  void finish_all(const Finish& finish);
  int64_t abort_all(bool for_drain = false);
  void set_failed(const Status& status);
  void fail(const Status& status);
  scheduler::SchedulerStats settle(int64_t num_aborted_by_drain = 0);

  // Constant after construction.
  const std::unique_ptr<const Clock> own_clock_;
  const Clock& clock_;
  const EngineOptions options_;
  const ModelInfo info_;
  const MemoryPlan memory_plan_;
  const std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  const int64_t max_at_once_;   // requests that one call may bring
  const Status out_of_memory_;  // made in time: later there may be no memory for it

  // Thread-safe.
  const std::unique_ptr<EngineMetrics> metrics_;  // null: off
  Inbox inbox_;
  Activity activity_;
  StepRecorder step_recorder_;
  std::atomic<double> step_delay_seconds_{0};
  std::atomic<int64_t> num_rounds_{0};

  // Engine thread only, except the scheduler's check_*().
  const std::unique_ptr<scheduler::Scheduler> scheduler_;
  Delivery delivery_;
  StepPipeline pipeline_;
  StepLog step_log_;
  WeightReader weight_reader_;                       // for mail_.update
  std::unique_ptr<runner::NewWeights> new_weights_;  // that were read and wait to be used
  int64_t num_weight_updates_ = 0;
  Mail mail_;                             // clears stay until the engine is idle, an update until
                                          // it is made
  std::vector<request::Sequence*> call_;  // reused
  std::vector<scheduler::Dropped> dropped_;  // reused
  bool paused_ = false;
  bool failed_ = false;
  bool failure_reported_ = false;  // to EngineOptions::on_failure
  bool unchecked_ = false;         // requests came since check_when_idle() checked

  // Last: the threads start when everything above is there.
  const std::function<void()> on_stuck_;
  std::thread thread_;
  std::unique_ptr<WatchdogThread> watchdog_;
};

}  // namespace heddle::engine
