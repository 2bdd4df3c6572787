// SPDX-License-Identifier: Apache-2.0
// Drafting: makes the drafts that plans want behind the draws of their steps
// (PlannedSequence::wanted_drafts), with a network beside the model or with a small model. A step
// calls it in this order:
//
//   begin() or begin_ahead() -> go_on() -> finish()
//
// begin_ahead() takes the place of begin() where the device goes on before the host knows what was
// drawn. Steps that are open (StepEnd::kOpen) call finish() alone.
//
// Drafts are handed to the scheduler with the step's output, or kept here and in KeptDrafts until
// the next step verifies them; the scheduler then learns their number alone.
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

// A step whose draws drafts are made for.
struct DraftedStep {
  const request::BatchPlan& plan;
  const request::BatchSlots& slots;
  std::span<const StepSequence> sequences;
  const ForwardBatch& batch;       // laid out last: this step, but in finish() of an open one
  const Pools& pools;              // the model's pools
  std::span<const int32_t> paths;  // StepSequence::path: once the host knows what was drawn
  std::span<const request::SampledToken> tokens;  // StepSequence::drawn

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

  // Whether finish() looks up the batch slots of the plan's step. No later plan may start another
  // text in one of them before.
  [[nodiscard]] virtual bool reads_texts(const request::BatchPlan& plan) const = 0;

  // After the draws of a step, whose states lie in their working slots: begins with the rows that
  // the step computed. Rows of drafts that held may move to their places afterwards.
  virtual Status begin(const DraftedStep& step) = 0;

  // Whether drafts may be kept, so that what the device drew is to be in the host's memory together
  // with those made before.
  [[nodiscard]] virtual bool keeps_drafts() const = 0;

  // Whether it can begin before the host knows what was drawn.
  [[nodiscard]] virtual bool can_begin_ahead(const request::BatchPlan& plan,
                                             const StepNeeds& needs) const = 0;

  // The same without paths and tokens: `drawn` is SampleRowsArgs::drawn of the step and `missing`
  // WalkDraftsArgs::missing, by sequence that draws, both in device memory. Only with
  // can_begin_ahead().
  virtual Status begin_ahead(const DraftedStep& step, const int32_t* drawn,
                             const int32_t* missing) = 0;

  // After either: enqueues the drafts.
  virtual Status go_on(const Pools& pools) = 0;

  // When the host knows the step's tokens: adds the drafts that follow them to `output` or, by
  // batch slot, to `kept`.
  virtual Status finish(const DraftedStep& step, KeptDrafts& kept, request::StepOutput& output) = 0;

  // Replaces all positions in `kept` by tokens. The stream must have passed the go_on() that made
  // them.
  virtual void read_back(KeptDrafts& kept) const = 0;

  // In memory of the device: all kept drafts, by KeptDrafts::places(), and the model's token for
  // each of the network's; null: they are the same. Only where drafts are kept on the device.
  [[nodiscard]] virtual const int32_t* kept_on_device() const = 0;
  [[nodiscard]] virtual const int32_t* target_ids_on_device() const = 0;
};

}  // namespace heddle::runner
