// SPDX-License-Identifier: Apache-2.0
// StepPipeline: runs the scheduler's plans on the runner. It keeps up to two steps in flight, so
// that the runner computes one while the engine thread processes the step before and plans the
// next. Without overlap only one step is in flight.
//
//   plan() -> launch() -> wait() -> recycle()      or, when something failed, abandon_all()
//
// Every plan of the scheduler is either completed by wait() or abandoned: the pipeline owns the
// plans and the runner and guarantees that. After an error or an exception, abandon_all() recovers.
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
  bool overlap = true;     // up to two steps in flight instead of one
  int64_t vocab_size = 0;  // a drawn token outside this vocabulary fails its step
};

// A step that the runner has computed and the scheduler has counted.
struct FinishedStep {
  const request::BatchPlan* plan = nullptr;  // plan of the step; valid until the next launch()
  request::StepOutput output;  // drawn tokens: one span per sequence with `sample`, in plan order
  StepFacts facts;
};

class StepPipeline {
 public:
  // The references outlive the pipeline.
  StepPipeline(std::unique_ptr<runner::Runner> runner, scheduler::Scheduler& scheduler,
               Activity& activity, const Clock& clock, const PipelineOptions& options);

  [[nodiscard]] bool empty() const { return num_in_flight_ == 0; }

  [[nodiscard]] bool full() const { return num_in_flight_ == max_in_flight_; }

  // Plans the next step. Null when nothing can run now, or when planning should wait for the step
  // in flight (Scheduler::awaits_draws()). The plan stays valid until it is finished or abandoned.
  // Not to be called when full() (checked).
  [[nodiscard]] const request::BatchPlan* plan();

  // Starts the step of plan(); `facts` counts its work. Error: that of Runner::submit(); all steps
  // have then been abandoned.
  Status launch(const StepFacts& facts);

  // Waits for the oldest step in flight (checked: there is one).
  // Errors: that of Runner::wait(); kInternal for an output that does not fit the plan. The step
  // has then been abandoned.
  Result<FinishedStep> wait();

  // Gives the memory of a finished step's output back to the runner for reuse.
  void recycle(FinishedStep step) { runner_->recycle(std::move(step.output)); }

  // Waits for the steps in flight and abandons them in the scheduler, and a plan that was not
  // launched too.
  void abandon_all();

  // Calls Runner::use_weights(). No step may be in flight (checked).
  Status use_weights(const runner::NewWeights& weights);

  [[nodiscard]] const runner::Runner& runner() const { return *runner_; }

  // Number of steps finished since the start.
  [[nodiscard]] int64_t num_finished() const { return num_finished_; }

 private:
  struct Slot {
    request::BatchPlan plan;
    StepFacts facts;
  };

  [[nodiscard]] Slot& oldest() {
    return slots_[(next_ + slots_.size() - num_in_flight_) % slots_.size()];
  }

  // Publishes the `count` oldest unfinished steps to Activity.
  void show_in_flight(size_t count);

  // Plans of the steps, used as a ring. The runner may read them until it is destroyed.
  std::array<Slot, runner::kMaxStepsInFlight> slots_;

  std::unique_ptr<runner::Runner> runner_;
  scheduler::Scheduler& scheduler_;
  Activity& activity_;
  const Clock& clock_;
  const PipelineOptions options_;
  const size_t max_in_flight_;

  size_t next_ = 0;           // index of the slot for the next plan
  size_t num_in_flight_ = 0;  // steps that were launched and not waited for
  bool planned_ = false;      // the next slot has a plan that is not launched yet
  double plan_seconds_ = 0;   // duration of the last planning, s
  double last_end_ = 0;       // when the last step ended, engine clock
  int64_t num_finished_ = 0;
};

}  // namespace heddle::engine
