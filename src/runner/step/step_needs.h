// SPDX-License-Identifier: Apache-2.0
// StepNeeds: properties of a plan that decide when its step may begin and when the host is needed.
// Computed in one pass over the plan.
//
// Threading: a plain value. Cost: O(sequences).
#pragma once

#include <algorithm>
#include <cstdint>

#include "request/batch_plan.h"

namespace heddle::runner {

struct StepNeeds {
  bool repeats_prompts = false;   // some sequences start from a stored hidden vector
  bool has_trees = false;         // some sequences verify a tree of drafts
  bool wants_drafts = false;      // some sequences want drafts after their draws
  bool may_keep_drafts = true;    // all sequences that want drafts let the runner keep them
  bool all_decode = true;         // each sequence has one row and draws from it
  bool feeds_beside_new = false;  // some sequences feed a drawn token together with other tokens
  int32_t most_drafts = 0;        // largest number of drafts that a sequence verifies

  [[nodiscard]] static StepNeeds of(const request::BatchPlan& plan) {
    StepNeeds needs;
    for (const request::PlannedSequence& sequence : plan.sequences) {
      const bool is_one_row = sequence.num_rows() == 1;
      needs.repeats_prompts |= sequence.hidden_slot != 0;
      needs.has_trees |= !sequence.draft_parents.empty();
      needs.wants_drafts |= sequence.wanted_drafts > 0;
      needs.may_keep_drafts &= sequence.wanted_drafts == 0 || sequence.may_keep_drafts;
      needs.all_decode &= sequence.sample && is_one_row;
      needs.feeds_beside_new |= sequence.feeds_drawn_token && !is_one_row;
      needs.most_drafts = std::max(needs.most_drafts, sequence.drafts.count);
    }
    return needs;
  }

  // Whether the step only draws: no drafts are verified or made, and no prompt starts from a stored
  // vector.
  [[nodiscard]] bool only_draws() const {
    return most_drafts == 0 && !wants_drafts && !repeats_prompts;
  }
};

}  // namespace heddle::runner
