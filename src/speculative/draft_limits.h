// SPDX-License-Identifier: Apache-2.0
// How many drafts a step may verify and in which shapes, according to the options.
//
// Threading: pure functions.
#pragma once

#include <cstdint>

#include <heddle/options.h>
#include <heddle/status.h>

#include "speculative/tree_growth.h"

namespace heddle::speculative {

inline constexpr int32_t kDefaultDraftTokens = 8;
inline constexpr int32_t kMostDraftRows = 64;
inline constexpr int32_t kMostForcedRows = 32;  // most rows with forced tokens in a step, without a
                                                // drafter
inline constexpr int32_t kMostBranches = 16;    // most branches of one level of a tree

// SpeculativeOptions::num_draft_tokens or its default, or derived from num_steps. 0 without drafts,
// and for kAuto, which must be resolved first.
[[nodiscard]] int32_t num_draft_tokens(const SpeculativeOptions& options);

// The shape of the trees that a draft network makes; topk is 1 for chains.
[[nodiscard]] TreeShape tree_shape(const SpeculativeOptions& options);

// Checks the options of trees. Error: kInvalidArgument, naming the option.
[[nodiscard]] Status check_tree_shape(const SpeculativeOptions& options);

// Most rows of sequences with drafts in a step, before memory limits. Without a drafter these rows
// are for tokens that a grammar forces (scheduler/stream_drafts.h).
[[nodiscard]] int64_t max_draft_rows(const SpeculativeOptions& options);

// Number of states of a draft model for its guesses, in addition to one per sequence: one for each
// sequence that can have drafts in a step, with at least two rows each.
[[nodiscard]] int64_t num_guess_states(int64_t max_sequences);

}  // namespace heddle::speculative
