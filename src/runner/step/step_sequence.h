// SPDX-License-Identifier: Apache-2.0
// StepSequence: a sequence in a step: what was planned for it, its batch slot, the part that it
// takes in the step, and where its rows lie. ForwardBatch makes them once, in the order of the
// plan, when the step is laid out; later phases of the step read them, and note what was drawn.
//
// Ownership: refers to the plan and to the batch slots, which outlive the step.
#pragma once

#include <cstdint>

#include "request/batch_plan.h"
#include "request/batch_slots.h"
#include "sampling/sampler.h"

namespace heddle::runner {

struct StepSequence {
  enum class Part : uint8_t {
    kComputed,  // its new tokens are rows of the forward pass
    kHidden,    // only the LM head runs, on a vector kept earlier
    kSkipped,   // it had ended
  };

  const request::PlannedSequence* planned = nullptr;
  const request::BatchSlot* slot = nullptr;

  Part part = Part::kComputed;

  // kComputed: its index among the sequences that are computed, and the row of its first new token;
  // the rows of its other tokens and of its drafts follow.
  int32_t batch_index = -1;
  int32_t first_row = -1;

  // kComputed: index of the row of its last new token among the logits, -1 if they are not wanted;
  // those of its drafts follow. kHidden: index among ForwardBatch::hidden_slots(), -1 likewise.
  int32_t logit_row = -1;

  // Index among the logits of the first row that scores a token; the others follow.
  int32_t scored_row = -1;

  // With drafts, in a model with states: slots of the working format that are no sequence's. Its
  // state advances in the first one, from a copy of the working slot; the others get it after the
  // last new token and after each draft but the last. 0: it advances in its working slot.
  // In a tree (below) the first slot is left as it is after the last new token, and the others get
  // the state after each draft.
  int32_t draft_slot = 0;

  bool has_tree = false;  // its drafts branch

  TokenId fed_token = sampling::kNoToken;  // what feeds_drawn_token stood for

  // Row of logits of the step before, where what feeds_drawn_token stands for is known to the
  // device alone: that it draws from. -1: the host knew.
  int32_t fed_from = -1;

  // Once the host knows what it drew: its tokens among StepOutput::tokens, and the nodes of its
  // drafts (speculative/draft_tree.h) that they were drawn behind, node 0 first, among those of the
  // step. Both empty: it draws nothing, or had ended.
  request::PlanRange drawn;
  request::PlanRange path;

  [[nodiscard]] bool is_computed() const { return part == Part::kComputed; }

  [[nodiscard]] bool draws_computed() const { return planned->sample && is_computed(); }

  [[nodiscard]] int32_t last_new_row() const {
    return first_row + static_cast<int32_t>(planned->num_new_tokens()) - 1;
  }

  // Index in the text of the token that it draws behind its new ones.
  [[nodiscard]] int64_t draw_position() const {
    return planned->context_tokens + planned->num_new_tokens();
  }

  // Index in the text of the token behind its `i`-th scored row.
  [[nodiscard]] int64_t scored_position(int32_t i) const {
    return planned->context_tokens + planned->scored.begin + i + 1;
  }

  // The slot with the state after so many drafts of a chain, or after node `index` of a tree.
  [[nodiscard]] int32_t state_after(int32_t index) const {
    if (has_tree) return draft_slot + index;
    return draft_slot + (index == planned->drafts.count ? 0 : 1 + index);
  }
};

}  // namespace heddle::runner
