// SPDX-License-Identifier: Apache-2.0
// StepLimits: how much one step of a runner can compute, and which drafts the runner makes. The
// scheduler plans steps within these limits.
#pragma once

#include <cstdint>

namespace heddle::request {

struct StepLimits {
  int64_t max_tokens = 0;  // most rows of a step, including rows of drafts

  // Most rows of sequences with drafts in a step, including the row before the drafts; the runner
  // has memory for the state after each of them. 0: no drafts are verified.
  int64_t max_draft_rows = 0;

  // Most rows of a step that score prompt tokens (PlannedSequence::scored); 0: scoring is not
  // supported.
  int64_t max_scored_rows = 0;

  // Most drafts that the runner makes after a draw (PlannedSequence::wanted_drafts); 0: it makes
  // none.
  int64_t max_made_drafts = 0;

  // Branches per level of the runner's draft trees (speculative/tree_growth.h), which have
  // draft_steps levels; 1: the drafts are a chain.
  int32_t draft_topk = 1;
  int32_t draft_steps = 0;

  // Sequences of up to this many tokens use the first table of rotary frequencies (longrope). All
  // rows of a longer sequence need the second table, so a sequence that grows beyond is computed
  // again from its first token. 0: there is only one table.
  int64_t short_rope_tokens = 0;

  // The runner's drafts come from a draft model, which reads the texts itself. Plans therefore
  // include the beginning of a text (SlotStart::context), and the last drawn token takes one more
  // draft slot.
  bool drafter_reads_texts = false;

  // KV slots after a text that the draft network fills for `num_drafts` drafts.
  [[nodiscard]] int64_t draft_slots(int64_t num_drafts) const {
    if (drafter_reads_texts) return num_drafts;
    return draft_topk > 1 ? int64_t{draft_steps - 1} * draft_topk : num_drafts - 1;
  }
};

}  // namespace heddle::request
