// SPDX-License-Identifier: Apache-2.0
// How many drafts a step may verify, and in which shapes, as far as the options alone say it.
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
inline constexpr int32_t kMostForcedRows = 32;  // rows of forced tokens in a step without a drafter
inline constexpr int32_t kMostBranches = 16;    // branches of one level of a tree

// SpeculativeOptions::num_draft_tokens with its default, or as its num_steps say; 0 without drafts,
// and with kAuto, which is to be settled before.
[[nodiscard]] int32_t num_draft_tokens(const SpeculativeOptions& options);

// The trees that a network drafts; topk is 1 where it drafts chains.
[[nodiscard]] TreeShape tree_shape(const SpeculativeOptions& options);

// Whether trees are as the options say they are. Error: kInvalidArgument, naming the option.
[[nodiscard]] Status check_tree_shape(const SpeculativeOptions& options);

// The most rows of sequences with drafts that a step may have, before memory is looked at. Without
// a drafter they are for tokens that the form of an answer forces (scheduler/stream_drafts.h).
[[nodiscard]] int64_t max_draft_rows(const SpeculativeOptions& options);

// A small model that drafts has states of its own: one for each sequence, and as many for guesses,
// which sequences with drafts have in one step, of two rows each at least.
[[nodiscard]] int64_t num_guess_states(int64_t max_sequences);

}  // namespace heddle::speculative
