// SPDX-License-Identifier: Apache-2.0
// StepExecutor: one plan from head to tokens, in four phases:
//
//   inputs   the plan becomes the arrays of a forward pass; then memory starts, moves or goes back
//   pass     the forward pass; hidden vectors are kept, or stand for a prompt
//   draws    a token of each sequence, and one more behind each draft that holds
//   settle   states and rows of drafts that held go to their places; new drafts are made
//
// Drafts are verified by drawing: from the row of each draft as plain decoding would draw there,
// as long as the draft is the token drawn before it. A sequence with drafts computes on copies of
// its state, one for each row, and the working slot gets the one of the last row drawn from. A
// state for each row was chosen over computing the accepted inputs once more: it takes no second
// pass over weights, and the copy is the very state that a plain step leaves behind, bit for bit.
// KV rows of rejected drafts lie behind the text and are overwritten by the next step.
//
// A chunk of a prompt may score tokens: the logprob of a token is read from the row before it, as
// it is; draws edit rows of their own only.
//
// A step is begun, which enqueues it, and finished, which waits for it and takes its tokens. Where
// tokens are drawn on the device, a step without drafts can begin while the step before still runs
// (token_source.h). Where the device makes chains of drafts, what follows the draws is enqueued
// with them (draft_walk.h): which drafts hold, the states behind them, the next drafts.
//
// Threading: confined to one thread, the one that takes part in the compute pool.
// Cost: a step allocates nothing once its sizes have been seen.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "request/batch_plan.h"
#include "request/batch_slots.h"
#include "request/step_output.h"
#include "runner/program/forward_pass.h"
#include "runner/runner.h"
#include "runner/step/drafting.h"
#include "runner/step/draws.h"
#include "runner/step/forward_batch.h"
#include "runner/step/kept_drafts.h"
#include "runner/step/pools.h"
#include "runner/step/running_step.h"
#include "runner/step/settlement.h"
#include "runner/step/token_source.h"

namespace heddle::runner {

// Drafts in the steps of a StepExecutor.
struct StepDrafts {
  std::unique_ptr<Drafting> maker;  // null: none are made

  double simulated_acceptance = 0;  // see SpeculativeOptions
};

class StepExecutor {
 public:
  // `context_length`: tokens a sequence may have. With PoolSizes::keeps_hidden the pass was made
  // with ForwardOptions::head_alone. It outlives the executor. `logit_rows`: what it computes, the
  // draws need no more than kSampled.
  StepExecutor(ForwardPass& pass, Pools pools, const PoolSizes& sizes,
               const request::StepLimits& limits, int64_t context_length,
               LogitRows logit_rows = LogitRows::kSampled, StepDrafts drafts = {});

  ~StepExecutor();

  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  // Takes the memory of the device that its draws need, before the first run. Error:
  // kResourceExhausted.
  Status prepare();

  // Begins and finishes. `output` is empty. After an error all earlier draws count as failed, so
  // that what was planned upon them is skipped.
  Status run(const request::BatchPlan& plan, request::StepOutput& output);

  // Whether the step can begin before the one that was begun is finished.
  [[nodiscard]] bool can_begin_behind(const request::BatchPlan& plan) const;

  // The plan must stay unchanged until the step is finished. Requires that no step has begun, or
  // one with can_begin_behind() (checked). A step that failed to begin must not be finished.
  Status begin(const request::BatchPlan& plan);

  // The oldest step that was begun (checked: there is one).
  Status finish(request::StepOutput& output);

  // Sequences of the last plan, in its order, as laid out, without their draws.
  [[nodiscard]] std::span<const StepSequence> sequences() const { return batch_.sequences(); }

 private:
  [[nodiscard]] int64_t num_running() const { return num_begun_ - num_finished_; }

  [[nodiscard]] RunningStep& step(int64_t number) {
    return steps_[static_cast<size_t>(number) % steps_.size()];
  }

  [[nodiscard]] const RunningStep& step(int64_t number) const {
    return steps_[static_cast<size_t>(number) % steps_.size()];
  }

  void lose_draws();
  Status enqueue(RunningStep& step);
  Status prepare_inputs(RunningStep& step);
  [[nodiscard]] StepEnd end_of(const RunningStep& step) const;
  Status run_pass(RunningStep& step);
  Status settle_on_device(const RunningStep& step);
  Status collect(RunningStep& step, request::StepOutput& output);
  Status settle(const RunningStep& step, const request::StepOutput& output);
  [[nodiscard]] DraftedStep drafted(const RunningStep& step,
                                    std::span<const request::SampledToken> tokens) const;

  ForwardPass* pass_;
  Pools pools_;
  LogitRows logit_rows_;
  request::BatchSlots slots_;
  ForwardBatch batch_;
  Draws draws_;
  TokenSource tokens_;
  KeptDrafts kept_drafts_;
  Settlement settlement_;
  std::unique_ptr<Drafting> drafting_;                // null: makes no drafts
  std::array<RunningStep, kMaxStepsInFlight> steps_;  // used in turn
  int64_t num_begun_ = 0;
  int64_t num_finished_ = 0;
};

}  // namespace heddle::runner
