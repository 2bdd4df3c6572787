// SPDX-License-Identifier: Apache-2.0
// Draws: draws the tokens of a step, on the host or on the device (device_draws.h), and walks down
// the drafts that they verify.
//
// Threading: confined to one thread. Cost: O(sequences + drafts) in addition to the draws
// themselves.
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
  // `pass` outlives the object. `simulated_acceptance`: see SpeculativeOptions; 0: a draft is
  // accepted if it equals the drawn token.
  Draws(ForwardPass& pass, LogitRows logit_rows, double simulated_acceptance);

  // Allocates the memory for draws on a device. Error: kResourceExhausted.
  Status prepare(int64_t num_batch_slots);

  // Null if the host draws: on the CPU, and where the host reads all logits.
  [[nodiscard]] DeviceDraws* device() const { return device_.get(); }

  [[nodiscard]] const speculative::SimulatedAcceptance* simulated() const {
    return simulated_ ? &*simulated_ : nullptr;
  }

  // The objects that the draws of a finished step change.
  struct Results {
    request::BatchSlots& slots;
    KeptDrafts& kept;
    TokenSource& tokens;
    Settlement& settlement;
    request::StepOutput& output;
  };

  // Draws and scores for all sequences of the step and records the results in them. Called once the
  // step's logits, or the device's draws from them, are available.
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
  speculative::DraftTree tree_;  // scratch: the tree of the current sequence
  std::vector<int32_t> path_;    // scratch: the path of the current sequence
};

}  // namespace heddle::runner
