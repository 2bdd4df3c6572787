// SPDX-License-Identifier: Apache-2.0
// Drafting: makes the drafts that plans want after the draws of their steps
// (PlannedSequence::wanted_drafts), with a draft network or a separate small model. A step calls it
// in this order:
//
//   begin() or begin_ahead() -> go_on() -> finish()
//
// begin_ahead() replaces begin() if the device continues before the host knows the drawn tokens.
// Steps with StepEnd::kOpen call finish() only.
//
// Drafts are either handed to the scheduler with the step's output, or kept here and in KeptDrafts
// until the next step verifies them. In the second case the scheduler knows only their number.
//
// Threading: confined to the thread that computes steps.
#pragma once

#include <cstdint>
#include <span>

#include "request/batch_plan.h"
#include "request/batch_slots.h"
#include "request/step_output.h"
#include "runner/step/forward_batch.h"
#include "runner/step/kept_drafts.h"
#include "runner/step/pools.h"
#include "runner/step/step_needs.h"
#include "runner/step/step_sequence.h"

namespace heddle::runner {

// A step after whose draws drafts are made.
struct DraftedStep {
  const request::BatchPlan& plan;
  const request::BatchSlots& slots;
  std::span<const StepSequence> sequences;
  const ForwardBatch& batch;       // the batch laid out last: this step's, except in finish() of a
                                   // step with StepEnd::kOpen
  const Pools& pools;              // the pools of the model
  std::span<const int32_t> paths;  // what StepSequence::path refers to; empty before the host knows
                                   // the draws
  std::span<const request::SampledToken> tokens;  // drawn tokens of the step; StepSequence::drawn
                                                  // is a range of them

  [[nodiscard]] std::span<const request::SampledToken> drawn(const StepSequence& sequence) const {
    return part_of(tokens, sequence.drawn);
  }

  [[nodiscard]] std::span<const int32_t> path(const StepSequence& sequence) const {
    return part_of(paths, sequence.path);
  }

 private:
  template <typename Value>
  static std::span<const Value> part_of(std::span<const Value> values, request::PlanRange range) {
    return values.subspan(static_cast<size_t>(range.begin), static_cast<size_t>(range.count));
  }
};

class Drafting {
 public:
  virtual ~Drafting() = default;

  // Whether finish() of the plan's step reads its batch slots. If so, no later plan may start
  // another sequence in one of them before.
  [[nodiscard]] virtual bool reads_texts(const request::BatchPlan& plan) const = 0;

  // Computes the rows of the step with the draft network. Called after the draws, when the states
  // are in their working slots, and before accepted rows of trees move to their positions.
  virtual Status begin(const DraftedStep& step) = 0;

  // Whether drafts may be kept by the runner. Then all results of the device's draws must reach
  // host memory together with the drafts made before.
  [[nodiscard]] virtual bool keeps_drafts() const = 0;

  // Whether drafting can begin before the host knows the drawn tokens.
  [[nodiscard]] virtual bool can_begin_ahead(const request::BatchPlan& plan,
                                             const StepNeeds& needs) const = 0;

  // begin() without paths and tokens. `drawn` is SampleRowsArgs::drawn of the step, and `missing`
  // is WalkDraftsArgs::missing with one entry per sequence that draws, both in device memory.
  // Requires can_begin_ahead().
  virtual Status begin_ahead(const DraftedStep& step, const int32_t* drawn,
                             const int32_t* missing) = 0;

  // Enqueues the making of the drafts. Called after begin() or begin_ahead().
  virtual Status go_on(const Pools& pools) = 0;

  // Called when the host knows the step's tokens: adds the drafts that follow them to `output`, or
  // to `kept` by batch slot.
  virtual Status finish(const DraftedStep& step, KeptDrafts& kept, request::StepOutput& output) = 0;

  // Replaces all positions in `kept` by tokens. The stream must have executed the go_on() that made
  // them.
  virtual void read_back(KeptDrafts& kept) const = 0;

  // Device memory with all kept drafts, indexed by KeptDrafts::places(), and with the model's token
  // for each token of the draft network; null: the tokens are the same. Only if drafts are kept on
  // the device.
  [[nodiscard]] virtual const int32_t* kept_on_device() const = 0;
  [[nodiscard]] virtual const int32_t* target_ids_on_device() const = 0;
};

}  // namespace heddle::runner
