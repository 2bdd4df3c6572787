// SPDX-License-Identifier: Apache-2.0
// StepExecutor: one plan from head to tokens: memory that starts, moves or goes back, the forward
// pass, hidden vectors that are kept or stand for a prompt, the draws. It remembers per batch
// slot what plans sent and the token drawn last, so that a plan may feed on a token that has not
// left the runner yet.
//
// Drafts are verified by drawing: from the row of each draft as plain decoding would draw there,
// as long as the draft is the token drawn before it. A sequence with drafts computes on copies of
// its state, one for each row, and the working slot gets the one of the last row drawn from. A
// state for each row was chosen over computing the accepted inputs once more: it takes no second
// pass over weights, and the copy is the very state that a plain step leaves behind, bit for bit.
// KV rows of rejected drafts lie behind the text and are overwritten by the next step. Those of a
// tree lie beside each other: the accepted ones then move to where a chain would have them, and
// snapshots inside the drafts are taken from the states of the nodes on the way.
//
// A chunk of a prompt may score tokens: the logprob of a token is read from the row before it, as
// it is; draws edit rows of their own only.
//
// A step is begun, which enqueues it, and finished, which waits for it and takes its tokens. Where
// tokens are drawn on the device, a step without drafts can begin while the step before still runs:
// rows that feed on its draws get them on the device (drawn_feed.h), and those that ended are left
// out there. Where the device makes chains of drafts, what follows the draws is
// enqueued with them (draft_walk.h): which drafts hold, the states behind them, the next drafts.
//
// Threading: confined to one thread, the one that takes part in the compute pool.
// Cost: a step allocates nothing once its sizes have been seen.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "request/batch_plan.h"
#include "request/batch_slots.h"
#include "request/step_output.h"
#include "runner/drafting/draft_maker.h"
#include "runner/drafting/draft_pass.h"
#include "runner/drafting/standalone_maker.h"
#include "runner/program/drawn_feed.h"
#include "runner/program/forward_pass.h"
#include "runner/runner.h"
#include "runner/step/accepted_paths.h"
#include "runner/step/device_sampling.h"
#include "runner/step/draft_walk.h"
#include "runner/step/forward_batch.h"
#include "runner/step/kept_drafts.h"
#include "runner/step/output_counts.h"
#include "runner/step/pools.h"
#include "sampling/sampler.h"
#include "speculative/draft_tree.h"
#include "speculative/simulated_acceptance.h"

namespace heddle::runner {

// Drafts in the steps of a StepExecutor.
struct StepDrafts {
  // Makes them (PoolSizes::max_made_drafts), or the small model on the same device does. Both null:
  // none are made.
  std::unique_ptr<DraftPass> pass;
  std::unique_ptr<ForwardPass> small_model;

  double simulated_acceptance = 0;  // see SpeculativeOptions
};

class StepExecutor {
 public:
  // `context_length`: tokens a sequence may have. With PoolSizes::keeps_hidden the pass was made
  // with ForwardOptions::head_alone. It outlives the executor. `logit_rows`: what it computes, the
  // draws need no more than kSampled.
  StepExecutor(ForwardPass& pass, Pools pools, const PoolSizes& sizes, int64_t context_length,
               LogitRows logit_rows = LogitRows::kSampled, StepDrafts drafts = {});

  ~StepExecutor();

  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  // Takes the memory of the device that its draws and drafts need, before the first run. Error:
  // kResourceExhausted.
  Status prepare();

  // Begins and finishes. `output` is empty. After an error all earlier draws count as failed, so
  // that what was planned upon them is skipped.
  Status run(const request::BatchPlan& plan, request::StepOutput& output);

  // Whether the step can begin before the one that was begun is finished.
  [[nodiscard]] bool can_begin_behind(const request::BatchPlan& plan) const;

  // The plan stays as it is until the step is finished. Only with no step begun, or with one and
  // can_begin_behind() (checked). A step that could not begin is not to be finished.
  Status begin(const request::BatchPlan& plan);

  // The oldest step that was begun (checked: there is one).
  Status finish(request::StepOutput& output);

  // The parts that the sequences of the last plan took.
  [[nodiscard]] std::span<const BatchedSequence> sequences() const { return batch_.sequences(); }

 private:
  // From begin() to finish().
  struct Step {
    const request::BatchPlan* plan = nullptr;
    std::vector<BatchedSequence> sequences;
    std::optional<DeviceSampling> sampling;  // where logits are not the host's
    std::unique_ptr<device::Event> done;     // likewise, and where its draws do not tell
    bool open = false;        // the host has nothing to do but to take what was drawn
    bool is_settled = false;  // nor here: what follows the draws, drafts included, is enqueued
    bool warms_up = false;
  };

  [[nodiscard]] Step& oldest() {
    return steps_[static_cast<size_t>(num_finished_) % steps_.size()];
  }

  [[nodiscard]] const Step& oldest() const {
    return steps_[static_cast<size_t>(num_finished_) % steps_.size()];
  }

  Status enqueue(const request::BatchPlan& plan, Step& step);
  Status mark_drawn(Step& step);
  Status wait_for_draws(Step& step);
  Status collect(Step& step, request::StepOutput& output);
  [[nodiscard]] Status check_walk(const Step& step);
  [[nodiscard]] bool can_settle_ahead(const request::BatchPlan& plan) const;
  Status settle_ahead(const request::BatchPlan& plan, Step& step);
  Status settle_drafts(const Step& step, request::StepOutput& output);
  [[nodiscard]] Status check(const request::BatchPlan& plan) const;
  [[nodiscard]] bool draws_on_device() const;
  [[nodiscard]] bool is_looked_up(int32_t batch_slot) const;
  [[nodiscard]] bool is_left_out(const request::PlannedSequence& sequence,
                                 const BatchedSequence& batched) const;
  void list_rows_in_flight();
  void add_fed_rows(const request::BatchPlan& plan);
  Status enqueue_draws(const request::BatchPlan& plan, Step& step);
  Status keep_hidden();
  Status run_head();
  Status copy_row(const TensorView& from, int64_t from_row, const MutableTensorView& to,
                  int64_t to_row);
  Status draw(const Step& step, request::StepOutput& output);
  void score(const Step& step, const request::PlannedSequence& sequence,
             const BatchedSequence& batched, request::StepOutput& output);
  Status draw_span(const Step& step, const request::PlannedSequence& sequence,
                   const BatchedSequence& batched, request::StepOutput& output);
  void accept(const Step& step, const request::PlannedSequence& sequence,
              const BatchedSequence& batched);
  void simulate(const request::PlannedSequence& sequence, int32_t node,
                request::SampledToken& sampled) const;
  void draw(const request::PlannedSequence& sequence, int64_t position,
            std::span<const uint32_t> mask, std::span<float> logits,
            request::SampledToken& sampled);

  ForwardPass* pass_;
  Pools pools_;
  PoolSizes sizes_;
  LogitRows logit_rows_;
  int64_t max_pages_;  // of one sequence
  request::BatchSlots slots_;
  ForwardBatch batch_;
  sampling::Sampler sampler_;
  std::array<Step, kMaxStepsInFlight> steps_;  // used in turn
  int64_t num_begun_ = 0;
  int64_t num_finished_ = 0;
  std::optional<DrawnFeed> feed_;              // where tokens are drawn on the device
  std::optional<DraftWalk> walk_;              // likewise
  std::optional<OutputCounts> output_counts_;  // likewise
  std::vector<int32_t> missing_;  // of the last step that was settled ahead, as walk_ will tell it
  bool has_unchecked_walk_ = false;
  std::vector<int32_t> rows_in_flight_;                // by batch slot, see ForwardBatch::build()
  StepDrafts drafts_;                                  // what makes them: until prepare()
  std::unique_ptr<DraftMaker> draft_maker_;            // null: makes no drafts
  std::unique_ptr<StandaloneMaker> standalone_maker_;  // null: makes no drafts
  KeptDrafts kept_drafts_;                             // that draft_maker_ made
  std::optional<speculative::SimulatedAcceptance> simulated_;
  speculative::DraftTree tree_;               // of the sequence at work
  AcceptedPaths accepted_;                    // of the step that is being finished
  std::vector<ops::IdCopy> accepted_states_;  // from draft slots to working slots and snapshots
  std::vector<ops::IdCopy> moved_rows_, moved_window_rows_;  // of accepted nodes of trees
  std::vector<TokenId>
      drawn_tokens_;  // by batch slot; kNoToken: none was drawn, or the draw failed
};

}  // namespace heddle::runner
