// SPDX-License-Identifier: Apache-2.0
// walk_drafts: after the draws of a step, counts on the device how many drafts of each chain are
// accepted, so that work that depends on the count can be enqueued before the host knows it. The
// result is that of speculative::DraftTree::walk() for a chain; the host later finds the same from
// the same tokens.
//
// A draft is accepted if it equals the token drawn before it, that token does not end the text, and
// its draw did not fail. The recurrent state after the last accepted draft is to be copied to the
// sequence's working slot: the kernel writes that copy for move_states().
//
// Cost: reads a few bytes for each draft; the time is that of a launch, about 2 us.
#pragma once

#include <cstdint>

#include "ops/context.h"
#include "ops/pool_lists.h"

namespace heddle::ops {

// A sequence that draws, with its chain of drafts, which are the rows after `first_row`.
struct WalkedDrafts {
  // Most drafts that can be simulated, one for each bit.
  static constexpr int32_t kMostSimulated = 64;

  int32_t first_row = 0;  // row of the step that holds the sequence's last new token
  int32_t logit_row = 0;  // row of the logits of that token; those of the drafts follow
  int32_t num_drafts = 0;
  int32_t endings_begin = 0;  // index in `endings` of the first token that ends the text
  int32_t num_endings = 0;
  int32_t state_slot = 0;  // the sequence's working slot
  // State slot with the state after all rows. The next slots have the states after first_row, after
  // the first draft and so on. 0: there are no such slots, and nothing is copied.
  int32_t draft_slot = 0;
  int32_t copy = 0;  // index in `copies` of the sequence's copy, if it has draft slots

  // For measurements with simulated acceptance (speculative/simulated_acceptance.h), bit i for
  // draft i: `simulated` replaces the comparison, and `holding` says whether the draft is accepted.
  // The token drawn before it is changed accordingly.
  uint64_t simulated = 0;
  uint64_t holding = 0;

  friend bool operator==(const WalkedDrafts&, const WalkedDrafts&) = default;
};

// All pointers are into memory of the context's device.
struct WalkDraftsArgs {
  const WalkedDrafts* sequences = nullptr;
  int64_t num_sequences = 0;
  const int32_t* endings = nullptr;
  const int32_t* ids = nullptr;  // [T]: token ids of the step
  int32_t* drawn = nullptr;      // SampleRowsArgs::drawn of the step; -1: the draw failed
  int32_t* missing = nullptr;    // [num_sequences]: number of rejected drafts
  int32_t* told = nullptr;       // copy of `missing` in pinned host memory
  IdCopy* copies = nullptr;
};

// Enqueues one launch. Error: kDeviceLost.
Status walk_drafts_cuda(CudaContext& context, const WalkDraftsArgs& args);

}  // namespace heddle::ops
