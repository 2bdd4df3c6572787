// SPDX-License-Identifier: Apache-2.0
// Runner: carries out a BatchPlan. The engine sees only this interface, so that tests drive the
// whole engine with a fake one.
//
// Threading: confined to the engine thread.
#pragma once

#include "request/batch_plan.h"
#include "request/step_output.h"

namespace heddle::runner {

// What the scheduler may hand out. Ids run from 1 to the given number; 0 is a sink nobody owns.
struct PoolSizes {
  int64_t num_pages = 0;
  int32_t page_size = 16;       // tokens
  int64_t num_state_slots = 0;  // 0 for models without recurrent state
  // Slots for snapshots alone, which are stored otherwise than working ones; 0: state slots do
  // for both, and BatchPlan::save_snapshots is not understood.
  int64_t num_snapshot_slots = 0;
  int64_t max_step_tokens = 0;  // new tokens of one step
  int32_t max_step_sequences = 0;

  // Bytes of one page and of one slot over all layers, and the memory the pools share: more ids are
  // there than fit at once (cache/memory_budget.h). 0: all of them fit.
  int64_t page_bytes = 0;
  int64_t state_slot_bytes = 0;
  int64_t snapshot_slot_bytes = 0;
  int64_t shared_bytes = 0;

  int64_t kv_window = 0;  // no layer reads more than so many of the last tokens; 0: some read all

  bool keeps_hidden = false;  // StateSnapshot::keep_hidden and hidden_slot are understood

  // Ids of StateSnapshot::slot and hidden_slot run to here.
  [[nodiscard]] int64_t max_snapshot_slot() const {
    return num_snapshot_slots > 0 ? num_snapshot_slots : num_state_slots;
  }
};

// Enough to keep the device busy while the host books one step and plans the next.
inline constexpr int kMaxStepsInFlight = 2;

class Runner {
 public:
  virtual ~Runner() = default;

  [[nodiscard]] virtual const PoolSizes& pool_sizes() const = 0;

  // Starts a step. Steps are carried out in the order of submission; at most kMaxStepsInFlight may
  // have been submitted and not waited for (checked). The plan and what it points at stay as they
  // are until wait() has returned its output.
  virtual Status submit(const request::BatchPlan& plan) = 0;

  // Waits for the oldest step in flight and returns its tokens. A Status, here or from submit(), is
  // a failure of the whole step (the device is lost); what is wrong with one sequence is in its
  // SampledToken.
  virtual Result<request::StepOutput> wait() = 0;

  // One step from beginning to end; none is in flight.
  Result<request::StepOutput> run(const request::BatchPlan& plan) {
    HEDDLE_RETURN_IF_ERROR(submit(plan));
    return wait();
  }

  // Takes back an output of wait() that has been processed, so that a later step can use its
  // memory.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): those that use it keep it
  virtual void recycle(request::StepOutput) {}
};

}  // namespace heddle::runner
