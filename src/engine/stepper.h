// SPDX-License-Identifier: Apache-2.0
// Stepper: the requests that the engine has taken, and the steps that compute them. It joins
//
// - Scheduler (scheduler/scheduler.h): which requests run in the next step.
// - StepPipeline (step_pipeline.h): plans on their way to the runner, and their outputs back.
// - Delivery (delivery.h): tokens become events; requests end.
//
// Steps overlap: while the runner computes one, step() processes the one before and plans the next,
// so that the device never waits for the host. A request that ends is in one more step, which
// leaves it out or whose result for it is dropped. SchedulingOptions::overlap = false: one step at
// a time.
//
// After every change it shows other threads the state (Activity, EngineMetrics, Inbox).
//
// When a step fails, or its output does not fit the plan, all requests end with kError and the
// Inbox refuses new ones. An exception of a library leaves a state from which finish_all()
// recovers.
//
// Threading: confined to the engine thread, except set_step_delay() and the scheduler's check_*().
// Cost:      a step of decoding allocates nothing of its own once its vectors have grown.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
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
#include "runner/runner.h"
#include "scheduler/scheduler.h"

namespace heddle::engine {

// Debug and sanitized builds: the scheduler proves its invariants whenever the last request has
// ended.
#if defined(NDEBUG) && !HEDDLE_SANITIZED
inline constexpr bool kChecksWhenIdle = false;
#else
inline constexpr bool kChecksWhenIdle = true;
#endif

struct StepperOptions {
  PipelineOptions pipeline;
  int64_t context_length = 0;        // requests end there at the latest
  int64_t pool_tokens = 0;           // capacity of the KV pool in tokens
  std::function<void()> on_failure;  // after the requests have ended; empty: nothing more
};

// The places in which the engine thread shows its state to other threads; all thread-safe.
struct Shown {
  Inbox& inbox;
  Activity& activity;
  StepRecorder& recorder;
  EngineMetrics* metrics;  // null: off
};

class Stepper {
 public:
  // `shown` and `clock` outlive the stepper.
  Stepper(std::unique_ptr<runner::Runner> runner, std::unique_ptr<scheduler::Scheduler> scheduler,
          const Shown& shown, const Clock& clock, StepperOptions options);

  // ---- Requests ----

  // Takes over requests; those of one call follow each other, and the scheduler takes all of a call
  // or none. `arrivals` is empty then. After an exception, call it again with what is left.
  void add(Arrivals& arrivals);

  // Unknown ids are ignored.
  void cancel(std::span<const int64_t> sequence_ids);

  // Ends all requests and gives up the steps in flight.
  void finish_all(const Finish& finish);

  // Like finish_all() with kAbort, and adds the number of requests to `count`. `for_drain`: a drain
  // waits for them.
  void abort_all(int64_t& count, bool for_drain);

  [[nodiscard]] int64_t num_live() const { return delivery_.num_live(); }

  // No request, and no step in flight.
  [[nodiscard]] bool empty() const { return delivery_.empty() && pipeline_.empty(); }

  // Copies the oldest `max_requests` requests and counts all.
  void view_requests(int64_t max_requests, Inspection& inspection) const {
    delivery_.view_requests(max_requests, inspection);
  }

  // ---- Steps ----

  // Ends requests that timed out or were displaced by a higher priority. Then, unless paused,
  // launches the next step and processes the oldest one in flight, as far as there are any.
  void step();

  // Waits for the steps in flight and delivers their tokens.
  void finish_steps();

  // The pause begins, or ends with none. Does nothing once a step has failed: an engine that ends
  // is not paused.
  void set_paused(std::optional<PauseMode> mode);

  [[nodiscard]] bool paused() const { return paused_; }

  // ---- Cache and weights ----

  // Clears the prefix cache; false, and nothing is done, while requests use it.
  [[nodiscard]] bool clear_cache();

  // Holds back requests that come, until admit_arrivals(); true once all others have ended. In a
  // pause, which holds everything back, it does nothing and is true.
  [[nodiscard]] bool hold_arrivals();
  void admit_arrivals();

  // Later steps use these weights. No step is in flight (checked). `flush`: no page or state
  // computed before is reused. Error: that of Runner::use_weights(); the stepper has then failed.
  Status use_weights(const runner::NewWeights& weights, bool flush);

  // How often the weights were exchanged.
  [[nodiscard]] int64_t num_weight_updates() const { return num_weight_updates_; }

  [[nodiscard]] const runner::Runner& runner() const { return pipeline_.runner(); }

  [[nodiscard]] const scheduler::Scheduler& scheduler() const { return *scheduler_; }

  // ---- Failure ----

  [[nodiscard]] bool failed() const { return failed_; }

  // The Inbox refuses requests from now on. Those that the stepper still holds end with
  // finish_all().
  void set_failed(const Status& status);

  // Lets the scheduler prove its invariants when the last request has left. Debug and sanitizer
  // builds only.
  void check_when_idle();

  // Any thread: seconds to wait before each step.
  void set_step_delay(double seconds) { step_delay_seconds_ = seconds; }

 private:
  void submit_call();
  void end_dropped();
  [[nodiscard]] bool launch_step();
  void finish_step();
  void fail(const Status& status);
  scheduler::SchedulerStats settle(int64_t num_aborted_by_drain = 0);

  const Shown shown_;
  const Clock& clock_;
  const std::function<void()> on_failure_;
  const std::unique_ptr<scheduler::Scheduler> scheduler_;
  Delivery delivery_;
  StepPipeline pipeline_;
  StepLog step_log_;
  std::atomic<double> step_delay_seconds_{0};

  std::vector<request::Sequence*> call_;     // reused
  std::vector<scheduler::Dropped> dropped_;  // reused
  int64_t num_weight_updates_ = 0;
  bool paused_ = false;
  bool failed_ = false;
  bool failure_reported_ = false;  // to on_failure_
  bool unchecked_ = false;         // requests came since check_when_idle() checked
};

}  // namespace heddle::engine
