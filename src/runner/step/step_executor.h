// SPDX-License-Identifier: Apache-2.0
// StepExecutor: computes the tokens of a plan, in four phases:
//
//   inputs   the plan becomes the arrays of a forward pass; pages and states are moved
//   pass     the forward pass; hidden vectors are stored, or replace a prompt's computation
//   draws    one token for each sequence, and one more for each accepted draft
//   settle   states and rows of accepted drafts are moved; new drafts are made
//
// Drafts are verified by drawing: from the row of each draft the token is drawn as in plain
// decoding, as long as the draft equals the token drawn before it. A sequence with drafts computes
// on copies of its state, one for each row, and the working slot gets the copy of the last row
// drawn from. This was chosen over computing the accepted inputs a second time: it needs no second
// pass over the weights, and the copy equals the state that a plain step leaves, bit for bit. KV
// rows of rejected drafts are after the end of the text and are overwritten by the next step.
//
// A chunk of a prompt may score tokens: the logprob of a token is computed from the unmodified row
// before it. Draws modify only rows of their own.
//
// begin() enqueues a step; finish() waits for it and returns its tokens. If tokens are drawn on the
// device, a step without drafts can begin while the step before still runs (token_source.h). If the
// device makes chains of drafts, the work after the draws is enqueued with them (draft_walk.h):
// which drafts are accepted, the states after them, the next drafts.
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

// How the steps of a StepExecutor make and accept drafts.
struct StepDrafts {
  std::unique_ptr<Drafting> maker;  // makes drafts; null: the runner makes none

  double simulated_acceptance = 0;  // tokens per step for a simulation; see SpeculativeOptions
};

class StepExecutor {
 public:
  // `context_length`: most tokens of a sequence. With PoolSizes::keeps_hidden `pass` must have been
  // made with ForwardOptions::head_alone. `pass` outlives the executor. `logit_rows`: which logits
  // to compute; draws need no more than kSampled.
  StepExecutor(ForwardPass& pass, Pools pools, const PoolSizes& sizes,
               const request::StepLimits& limits, int64_t context_length,
               LogitRows logit_rows = LogitRows::kSampled, StepDrafts drafts = {});

  ~StepExecutor();

  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  // Allocates the device memory that draws need. Must be called before the first run. Error:
  // kResourceExhausted.
  Status prepare();

  // begin() and finish(). `output` must be empty. After an error all earlier draws count as failed,
  // so that sequences planned to continue from them are skipped.
  Status run(const request::BatchPlan& plan, request::StepOutput& output);

  // Whether the step can begin while another one is running.
  [[nodiscard]] bool can_begin_behind(const request::BatchPlan& plan) const;

  // Begins a step. The plan must stay unchanged until the step is finished. Requires that no step
  // is running, or can_begin_behind() (checked). A step that failed to begin must not be finished.
  Status begin(const request::BatchPlan& plan);

  // Finishes the oldest running step; there must be one (checked).
  Status finish(request::StepOutput& output);

  // The sequences of the last plan, in its order, as laid out, without their draws.
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
  std::unique_ptr<Drafting> drafting_;                // makes drafts; null: the runner makes none
  std::array<RunningStep, kMaxStepsInFlight> steps_;  // running steps by number, used in turn
  int64_t num_begun_ = 0;
  int64_t num_finished_ = 0;
};

}  // namespace heddle::runner
