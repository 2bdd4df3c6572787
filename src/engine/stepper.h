// SPDX-License-Identifier: Apache-2.0
// Stepper: the engine's requests, and the steps that compute them. It joins
//
// - Scheduler (scheduler/scheduler.h): which requests run in the next step.
// - StepPipeline (step_pipeline.h): sends plans to the runner and receives their outputs.
// - Delivery (delivery.h): tokens become events; requests end.
//
// Steps overlap: while the runner computes one, step() processes the output of the one before and
// plans the next, so that the device never waits for the host. A request that ends may therefore be
// in one more step, which skips the request or whose result for it is dropped. With
// SchedulingOptions::overlap = false, one step runs at a time.
//
// After every change it publishes its state to other threads (Activity, EngineMetrics, Inbox).
//
// When a step fails, or its output does not fit the plan, all requests end with kError and the
// Inbox refuses new ones. After an exception thrown by a library, finish_all() restores a valid
// state.
//
// Threading: confined to the engine thread, except set_step_delay() and the scheduler's check_*().
// Cost:      a decode step allocates nothing once the vectors have grown.
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

// Debug and sanitizer builds: the scheduler checks its invariants whenever the last request has
// ended.
#if defined(NDEBUG) && !HEDDLE_SANITIZED
inline constexpr bool kChecksWhenIdle = false;
#else
inline constexpr bool kChecksWhenIdle = true;
#endif

struct StepperOptions {
  PipelineOptions pipeline;
  int64_t context_length = 0;        // length in tokens, prompt and output, at which requests end
  int64_t pool_tokens = 0;           // capacity of the KV pool in tokens
  std::function<void()> on_failure;  // called after the requests have ended; may be empty
};

// The objects through which the engine thread publishes its state to other threads; all
// thread-safe.
struct Shown {
  Inbox& inbox;
  Activity& activity;
  StepRecorder& recorder;
  EngineMetrics* metrics;  // null: metrics are off
};

class Stepper {
 public:
  // `shown` and `clock` outlive the stepper.
  Stepper(std::unique_ptr<runner::Runner> runner, std::unique_ptr<scheduler::Scheduler> scheduler,
          const Shown& shown, const Clock& clock, StepperOptions options);

  // ---- Requests ----

  // Adds new requests. Requests of one call are consecutive, and the scheduler accepts all of a
  // call or none. Empties `arrivals`. After an exception, call it again with the rest.
  void add(Arrivals& arrivals);

  // Cancels sequences; unknown ids are ignored.
  void cancel(std::span<const int64_t> sequence_ids);

  // Ends all requests and abandons the steps in flight.
  void finish_all(const Finish& finish);

  // Like finish_all() with kAbort, and adds the number of requests to `count`. `for_drain`: a drain
  // waits for these requests.
  void abort_all(int64_t& count, bool for_drain);

  [[nodiscard]] int64_t num_live() const { return delivery_.num_live(); }

  // True without requests and without a step in flight.
  [[nodiscard]] bool empty() const { return delivery_.empty() && pipeline_.empty(); }

  // Copies the oldest `max_requests` requests and counts all.
  void view_requests(int64_t max_requests, Inspection& inspection) const {
    delivery_.view_requests(max_requests, inspection);
  }

  // ---- Steps ----

  // Ends requests that timed out or were displaced by a higher priority. Then, unless paused,
  // launches the next step and processes the oldest step in flight, if any.
  void step();

  // Waits for the steps in flight and delivers their tokens.
  void finish_steps();

  // Starts a pause, or ends it with nullopt. Does nothing once a step has failed, because a failed
  // engine is not paused.
  void set_paused(std::optional<PauseMode> mode);

  [[nodiscard]] bool paused() const { return paused_; }

  // ---- Cache and weights ----

  // Clears the prefix cache. Returns false and does nothing while requests use it.
  [[nodiscard]] bool clear_cache();

  // Makes new requests wait until admit_arrivals(). Returns true once all earlier requests have
  // ended. During a pause no request runs; then it does nothing and returns true.
  [[nodiscard]] bool hold_arrivals();
  void admit_arrivals();

  // Makes later steps use these weights. No step is in flight (checked). `flush`: no cached page or
  // state is reused. Error: that of Runner::use_weights(); the stepper has then failed.
  Status use_weights(const runner::NewWeights& weights, bool flush);

  // Number of weight updates since the start.
  [[nodiscard]] int64_t num_weight_updates() const { return num_weight_updates_; }

  [[nodiscard]] const runner::Runner& runner() const { return pipeline_.runner(); }

  [[nodiscard]] const scheduler::Scheduler& scheduler() const { return *scheduler_; }

  // ---- Failure ----

  [[nodiscard]] bool failed() const { return failed_; }

  // Marks the stepper as failed and makes the Inbox refuse requests. The caller then ends the
  // stepper's requests with finish_all().
  void set_failed(const Status& status);

  // Debug and sanitizer builds only: lets the scheduler check its invariants when the last request
  // has ended.
  void check_when_idle();

  // Any thread: delays each step's launch by these seconds.
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

  std::vector<request::Sequence*> call_;  // sequences of one call, kept to reuse its memory
  // Requests that the scheduler dropped, kept to reuse its memory.
  std::vector<scheduler::Dropped> dropped_;
  int64_t num_weight_updates_ = 0;
  bool paused_ = false;
  bool failed_ = false;
  bool failure_reported_ = false;  // on_failure_ was called
  bool unchecked_ = false;         // requests arrived since check_when_idle() last checked
};

}  // namespace heddle::engine
