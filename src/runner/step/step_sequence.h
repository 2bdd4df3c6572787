// SPDX-License-Identifier: Apache-2.0
// StepSequence: a sequence in a step: its part of the plan, its batch slot, its kind of work and
// the location of its rows. ForwardBatch creates these objects once, in plan order, when it lays
// out the step; later phases read them and record the drawn tokens.
//
// Ownership: refers to the plan and the batch slots, which outlive the step.
#pragma once

#include <cstdint>

#include "request/batch_plan.h"
#include "request/batch_slots.h"
#include "sampling/sampler.h"

namespace heddle::runner {

struct StepSequence {
  enum class Part : uint8_t {
    kComputed,  // the sequence's new tokens are rows of the forward pass
    kHidden,    // only the LM head runs, on a stored hidden vector
    kSkipped,   // the sequence had ended before the step
  };

  const request::PlannedSequence* planned = nullptr;
  const request::BatchSlot* slot = nullptr;

  Part part = Part::kComputed;

  // kComputed: its index among the computed sequences, and the row of its first new token. The rows
  // of its other tokens and of its drafts follow.
  int32_t batch_index = -1;
  int32_t first_row = -1;

  // kComputed: index among the logits of the row of its last new token, -1 if that is not wanted;
  // the rows of its drafts follow. kHidden: index in ForwardBatch::hidden_slots(), -1 if not
  // wanted.
  int32_t logit_row = -1;

  // Index among the logits of the row of its first scored token; the others follow.
  int32_t scored_row = -1;

  // With drafts, in a model with states: the first of several draft slots. 0: the state advances in
  // the working slot. In a chain the state advances in the first slot, from a copy of the working
  // slot; the other slots get the state after the last new token and after each draft but the last.
  // In a tree the first slot has the state after the last new token, and the others have the states
  // after each draft.
  int32_t draft_slot = 0;

  bool has_tree = false;  // the sequence's drafts form a tree

  TokenId fed_token = sampling::kNoToken;  // the token that feeds_drawn_token stands for, if the
                                           // host knows it

  // Index of the logit row of the step before from which the device draws the token that
  // feeds_drawn_token stands for; -1: the host knows the token.
  int32_t fed_from = -1;

  // Set when the host knows the draws. `drawn` is the range of its tokens in StepOutput::tokens.
  // `path` is a range of RunningStep::paths: for each token the node of the draft tree
  // (speculative/draft_tree.h) that it follows, node 0 first. Both are empty if the sequence draws
  // nothing or had ended.
  request::PlanRange drawn;
  request::PlanRange path;

  [[nodiscard]] bool is_computed() const { return part == Part::kComputed; }

  [[nodiscard]] bool draws_computed() const { return planned->sample && is_computed(); }

  [[nodiscard]] int32_t last_new_row() const {
    return first_row + static_cast<int32_t>(planned->num_new_tokens()) - 1;
  }

  // Position in the sequence of the token drawn after its new ones.
  [[nodiscard]] int64_t draw_position() const {
    return planned->context_tokens + planned->num_new_tokens();
  }

  // Position in the sequence of the token that its `i`-th scored row predicts.
  [[nodiscard]] int64_t scored_position(int32_t i) const {
    return planned->context_tokens + planned->scored.begin + i + 1;
  }

  // The state slot with the state after `index` drafts of a chain, or after node `index` of a tree.
  [[nodiscard]] int32_t state_after(int32_t index) const {
    if (has_tree) return draft_slot + index;
    return draft_slot + (index == planned->drafts.count ? 0 : 1 + index);
  }
};

}  // namespace heddle::runner
