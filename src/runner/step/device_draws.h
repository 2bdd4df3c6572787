// SPDX-License-Identifier: Apache-2.0
// DeviceDraws: the draws of steps whose logits are on a device, for as many steps as may be in
// flight. The next step reads the drawn tokens on the device (DrawnFeed). The device also finds
// which drafts are accepted (DraftWalk). So both can be enqueued before the host knows a token.
//
//   begin() -> lay_out() -> the forward pass, with feed() -> enqueue() -> mark_drawn(), walk()
//   wait() -> token(), score(), has_ended()
//
// Threading: confined to one thread. Cost: that of DeviceSampling, OutputCounts, DrawnFeed and
// DraftWalk.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "request/step_output.h"
#include "runner/program/drawn_feed.h"
#include "runner/program/forward_pass.h"
#include "runner/runner.h"
#include "runner/step/device_sampling.h"
#include "runner/step/draft_walk.h"
#include "runner/step/drafting.h"
#include "runner/step/kept_drafts.h"
#include "runner/step/output_counts.h"
#include "runner/step/running_step.h"
#include "speculative/draft_tree.h"
#include "speculative/simulated_acceptance.h"

namespace heddle::runner {

class DeviceDraws {
 public:
  // Allocates the memory for the draws. `pass` outlives the object. Error: kResourceExhausted.
  static Result<std::unique_ptr<DeviceDraws>> create(ForwardPass& pass, int64_t num_batch_slots);

  // Begins a step of the plan. The batch slots must have been updated with the plan.
  Status begin(const request::BatchPlan& plan) { return counts_.begin(pass_->stream(), plan); }

  // Sources of tokens and drafts that the host does not know yet.
  struct Sources {
    const RunningStep* before = nullptr;  // the step that is still in flight; null: none
    const KeptDrafts* kept = nullptr;
    const Drafting* drafting = nullptr;  // maker of the kept drafts; null: no drafts are made
    const speculative::SimulatedAcceptance* simulated = nullptr;
  };

  // Lists all rows that the step's sequences feed, count, score and draw from. `num_logit_rows`:
  // number of logit rows of the step.
  Status lay_out(const RunningStep& step, int64_t num_logit_rows, const Sources& sources);

  // The tokens and drafts, listed by the last lay_out(), that the forward pass reads on the device.
  [[nodiscard]] DrawnFeed& feed() { return feed_; }

  // Enqueues the draws after the forward pass. `tells_all`: as in SampleRowsArgs.
  Status enqueue(const RunningStep& step, bool tells_all);

  // Records the event that wait() waits for. Work enqueued later does not delay wait().
  Status mark_drawn(const RunningStep& step);

  // Waits until the drawn tokens of the step are in host memory.
  Status wait(const RunningStep& step);

  // Enqueues the search for accepted drafts. Must be called after mark_drawn().
  Status walk(const RunningStep& step);

  [[nodiscard]] const DraftWalk& walked() const { return walk_; }

  // The drawn tokens in device memory, as SampleRowsArgs::drawn.
  [[nodiscard]] int32_t* drawn(const RunningStep& step) { return of(step).sampling.drawn(); }

  // To be called after wait(): token() reads the token drawn from a row of logits, has_ended()
  // whether the row was left out because its text had ended, score() the `index`-th scored token of
  // the step.
  void token(const RunningStep& step, int32_t row, request::SampledToken& sampled) const {
    of(step).sampling.take(row, sampled);
  }

  [[nodiscard]] bool has_ended(const RunningStep& step, int32_t row) const {
    return of(step).sampling.has_ended(row);
  }

  void score(const RunningStep& step, size_t index, request::ScoredToken& scored) const {
    of(step).sampling.take_scored(index, scored);
  }

  // Records that the host rejected `count` drafts of the next sequence. The device has continued
  // with its own count; check_walk() compares the two when the following step is finished.
  void expect_missing(int32_t count) { expected_missing_.push_back(count); }

  // `later`: the step that is being finished. Error kInternal if the host and the device disagree:
  // from then on texts would be wrong.
  Status check_walk(const RunningStep& later);

  // Called when a step failed: nothing is left to compare.
  void forget_walk() { expected_missing_.clear(); }

 private:
  struct Running {
    DeviceSampling sampling;
    std::unique_ptr<device::Event> done;  // used where the draws do not signal the host themselves
  };

  DeviceDraws(ForwardPass& pass, OutputCounts counts);

  [[nodiscard]] Running& of(const RunningStep& step) {
    return running_[static_cast<size_t>(step.number) % running_.size()];
  }

  [[nodiscard]] const Running& of(const RunningStep& step) const {
    return running_[static_cast<size_t>(step.number) % running_.size()];
  }

  void begin_feed(int64_t num_logit_rows, const Sources& sources);
  void add_fed_rows(const request::BatchPlan& plan, const StepSequence& sequence,
                    const KeptDrafts& kept);
  void add_scored(DeviceSampling& sampling, const request::BatchPlan& plan,
                  const StepSequence& sequence);
  Status add_draws(DeviceSampling& sampling, const request::BatchPlan& plan,
                   const StepSequence& sequence, const KeptDrafts& kept);
  void add_walk(const StepSequence& sequence, const speculative::SimulatedAcceptance* simulated);

  ForwardPass* pass_;
  OutputCounts counts_;
  DrawnFeed feed_;
  DraftWalk walk_;
  std::vector<Running> running_;  // one entry for each of kMaxStepsInFlight steps, used in turn
  speculative::DraftTree tree_;   // scratch: the tree of the current sequence
  std::vector<int32_t> expected_missing_;
};

}  // namespace heddle::runner
