// SPDX-License-Identifier: Apache-2.0
// StepLimits: how much one step of a runner takes, and which drafts the runner makes. From the
// runner to the scheduler, which plans the steps.
#pragma once

#include <cstdint>

namespace heddle::request {

struct StepLimits {
  int64_t max_tokens = 0;  // rows, those of drafts included

  // Rows that belong to sequences with drafts, the one before the drafts included; for each there
  // is memory for its state. 0: no drafts are verified.
  int64_t max_draft_rows = 0;

  // Rows that score tokens of prompts (PlannedSequence::scored); 0: none can.
  int64_t max_scored_rows = 0;

  // Drafts that the runner makes after a draw (PlannedSequence::wanted_drafts), at most; 0: none.
  int64_t max_made_drafts = 0;

  // More than one branch: these drafts are trees (speculative/tree_growth.h) with draft_steps
  // levels.
  int32_t draft_topk = 1;
  int32_t draft_steps = 0;

  // Sequences of up to this many tokens use the first table of rotary frequencies (longrope). A
  // longer sequence needs the second table for all of its rows, so it is computed again from its
  // first token. 0: there is only one table.
  int64_t short_rope_tokens = 0;

  // A draft model makes them. It reads texts itself, so that plans include their beginning
  // (SlotStart::context) and the last drawn token, which takes one more slot.
  bool drafter_reads_texts = false;

  // Slots after a text that the draft network fills for `num_drafts` drafts.
  [[nodiscard]] int64_t draft_slots(int64_t num_drafts) const {
    if (drafter_reads_texts) return num_drafts;
    return draft_topk > 1 ? int64_t{draft_steps - 1} * draft_topk : num_drafts - 1;
  }
};

}  // namespace heddle::request
