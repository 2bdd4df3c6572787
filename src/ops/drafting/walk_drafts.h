// SPDX-License-Identifier: Apache-2.0
// walk_drafts: behind the draws of a step, how far each chain of drafts holds, found where the
// tokens are: work that depends on it can be enqueued before the host knows. It is what
// speculative::DraftTree::walk() finds in a chain, and what the host finds later from the same
// tokens.
//
// A draft holds where it is the token drawn before it, that token ends no text, and its draw did
// not fail. The sequence's state goes from the slot behind its last draft that holds to its working
// slot: as a copy for move_states().
//
// Bytes: some for each draft; the time is that of a launch, about 2 us.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/pool_lists.h"

namespace heddle::ops {

// A sequence that draws. Its chain of drafts is in the rows after `first_row`.
struct WalkedDrafts {
  static constexpr int32_t kMostSimulated = 64;  // drafts

  int32_t first_row = 0;  // row of the step that holds the sequence's last new token
  int32_t logit_row = 0;  // row of the logits of that token; those of the drafts follow
  int32_t num_drafts = 0;
  int32_t endings_begin = 0;  // first of the tokens in `endings` that end the text
  int32_t num_endings = 0;
  int32_t state_slot = 0;  // the sequence's working slot
  // Slot with the state after all rows; the next slots have the states after first_row, after the
  // first draft, ...; 0: there are none, and nothing is copied.
  int32_t draft_slot = 0;
  int32_t copy = 0;  // index among `copies`, where it has some

  // Bit i, draft i: `holding` says whether it holds, for a measurement
  // (speculative/simulated_acceptance.h). The token drawn before it becomes it, or another one.
  uint64_t simulated = 0;
  uint64_t holding = 0;

  friend bool operator==(const WalkedDrafts&, const WalkedDrafts&) = default;
};

// Pointers lead into memory of the context's device.
struct WalkDraftsArgs {
  const WalkedDrafts* sequences = nullptr;
  int64_t num_sequences = 0;
  const int32_t* endings = nullptr;
  const int32_t* ids = nullptr;  // [T], of the step
  int32_t* drawn = nullptr;      // SampleRowsArgs::drawn of the step; -1: failed
  int32_t* missing = nullptr;    // [num_sequences]: drafts that do not hold
  int32_t* told = nullptr;       // the same numbers in pinned memory of the host
  IdCopy* copies = nullptr;
};

// One launch. Error: kDeviceLost.
Status walk_drafts_cuda(CudaContext& context, const WalkDraftsArgs& args);

}  // namespace heddle::ops
