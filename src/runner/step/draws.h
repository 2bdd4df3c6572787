// SPDX-License-Identifier: Apache-2.0
// Draws: the tokens of a step, drawn by the host or by the device (device_draws.h), and the walk
// down the drafts that they verify.
//
// Threading: confined. Cost: O(sequences + drafts) beside the draws themselves.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "request/batch_slots.h"
#include "request/step_output.h"
#include "runner/program/forward_pass.h"
#include "runner/step/device_draws.h"
#include "runner/step/forward_batch.h"
#include "runner/step/host_draws.h"
#include "runner/step/kept_drafts.h"
#include "runner/step/running_step.h"
#include "runner/step/settlement.h"
#include "runner/step/token_source.h"
#include "speculative/draft_tree.h"
#include "speculative/simulated_acceptance.h"

namespace heddle::runner {

class Draws {
 public:
  // `pass` outlives them. `simulated_acceptance`: see SpeculativeOptions; 0: drafts hold where they
  // are what was drawn.
  Draws(ForwardPass& pass, LogitRows logit_rows, double simulated_acceptance);

  // Takes the memory that draws on a device need. Error: kResourceExhausted.
  Status prepare(int64_t num_batch_slots);

  // Null: the host draws, on the CPU and where it reads all logits.
  [[nodiscard]] DeviceDraws* device() const { return device_.get(); }

  [[nodiscard]] const speculative::SimulatedAcceptance* simulated() const {
    return simulated_ ? &*simulated_ : nullptr;
  }

  // All that the draws of a finished step change.
  struct Results {
    request::BatchSlots& slots;
    KeptDrafts& kept;
    TokenSource& tokens;
    Settlement& settlement;
    request::StepOutput& output;
  };

  // Once the logits of the step are there, or what the device drew from them: draws and scores for
  // all its sequences, and notes in them what was drawn.
  Status draw(RunningStep& step, Results& results);

 private:
  Status draw(RunningStep& step, StepSequence& sequence, Results& results);
  void score(const RunningStep& step, const StepSequence& sequence, request::StepOutput& output);
  Status draw_span(RunningStep& step, StepSequence& sequence, Results& results);
  void draw_behind(const RunningStep& step, const StepSequence& sequence, int32_t node,
                   request::SampledToken& sampled);
  void simulate(const StepSequence& sequence, int32_t node, request::SampledToken& sampled) const;

  ForwardPass* pass_;
  LogitRows logit_rows_;
  HostDraws host_;
  std::unique_ptr<DeviceDraws> device_;
  std::optional<speculative::SimulatedAcceptance> simulated_;
  speculative::DraftTree tree_;  // of the current sequence
  std::vector<int32_t> path_;    // of the current sequence
};

}  // namespace heddle::runner
