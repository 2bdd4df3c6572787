// SPDX-License-Identifier: Apache-2.0
// StepPipeline: the steps between the scheduler and the runner. It keeps up to two in flight, so
// that the runner computes one while the engine thread processes the step before and plans the
// next; without overlap, one at a time.
//
//   plan() -> launch() -> wait() -> recycle()      or, when something failed, abandon_all()
//
// Every plan of the scheduler is either completed by wait() or abandoned: the pipeline owns the
// plans, the runner, and that promise. An error or an exception leaves it in a state from which
// abandon_all() recovers.
//
// Threading: confined to the engine thread. Cost: allocates nothing of its own.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <heddle/status.h>

#include "core/clock.h"
#include "engine/activity.h"
#include "engine/step_log.h"
#include "request/batch_plan.h"
#include "request/step_output.h"
#include "runner/runner.h"
#include "scheduler/scheduler.h"

namespace heddle::engine {

struct PipelineOptions {
  bool overlap = true;     // two steps in flight
  int64_t vocab_size = 0;  // tokens outside it fail the step that drew them
};

// A step that was computed and that the scheduler has counted.
struct FinishedStep {
  const request::BatchPlan* plan = nullptr;  // valid until the next launch()
  request::StepOutput output;                // a span per sequence with `sample`, in plan order
  StepFacts facts;
};

class StepPipeline {
 public:
  // The references outlive the pipeline.
  StepPipeline(std::unique_ptr<runner::Runner> runner, scheduler::Scheduler& scheduler,
               Activity& activity, const Clock& clock, const PipelineOptions& options);

  [[nodiscard]] bool empty() const { return num_in_flight_ == 0; }

  [[nodiscard]] bool full() const { return num_in_flight_ == max_in_flight_; }

  // The next step; null when nothing can run now, or when it is better planned after the one in
  // flight (Scheduler::awaits_draws()). It stays as it is until it is finished or
  // abandoned. Not when full (checked).
  [[nodiscard]] const request::BatchPlan* plan();

  // Starts the step of plan(); `facts` counts it. Error: that of Runner::submit(); all steps have
  // then been abandoned.
  Status launch(const StepFacts& facts);

  // Waits for the oldest step in flight (checked: there is one).
  // Errors: that of Runner::wait(); kInternal for an output that does not fit the plan. The step
  // has then been abandoned.
  Result<FinishedStep> wait();

  // Takes back the memory of a finished step.
  void recycle(FinishedStep step) { runner_->recycle(std::move(step.output)); }

  // Waits for the steps in flight and has the scheduler forget them, as well as a plan that was not
  // launched.
  void abandon_all();

  // Runner::use_weights(), while no step is in flight (checked).
  Status use_weights(const runner::NewWeights& weights);

  [[nodiscard]] const runner::Runner& runner() const { return *runner_; }

  // Since the start.
  [[nodiscard]] int64_t num_finished() const { return num_finished_; }

 private:
  struct Slot {
    request::BatchPlan plan;
    StepFacts facts;
  };

  [[nodiscard]] Slot& oldest() {
    return slots_[(next_ + slots_.size() - num_in_flight_) % slots_.size()];
  }

  // The first `count` steps from the oldest one in flight on.
  void show_in_flight(size_t count);

  std::unique_ptr<runner::Runner> runner_;
  scheduler::Scheduler& scheduler_;
  Activity& activity_;
  const Clock& clock_;
  const PipelineOptions options_;
  const size_t max_in_flight_;

  std::array<Slot, runner::kMaxStepsInFlight> slots_;  // used in turn
  size_t next_ = 0;                                    // slot of the next plan
  size_t num_in_flight_ = 0;                           // launched, not waited for
  bool planned_ = false;                               // the next slot has a plan to launch
  double plan_seconds_ = 0;                            // duration of planning
  double last_end_ = 0;                                // when the last step ended
  int64_t num_finished_ = 0;
};

}  // namespace heddle::engine
