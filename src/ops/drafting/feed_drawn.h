// SPDX-License-Identifier: Apache-2.0
// Feeding drawn tokens: a step may be launched before the tokens of the previous step are known.
// Rows that need one of these tokens get it at the head of the step (bring_batch.h), from the array
// that sample_rows() wrote. If the token ends its sequence, or its draw failed, the row becomes
// padding (forward_context.h): nothing of its sequence is read or written, and no token is drawn
// for it. A draft never ends a sequence.
//
// A step may also be laid out before it is known how many drafts of the previous step are accepted
// (walk_drafts.h), as if all were. At the head of the step, positions and lengths are then reduced
// by the number of rejected drafts.
#pragma once

#include <cstdint>

namespace heddle::ops {

// The arrays of a DeviceBatch, and the ids and positions of its rows, that the device may change
// after their upload.
struct DeviceBatchRows {
  int32_t* ids = nullptr;        // [T]: token ids of the rows
  int32_t* positions = nullptr;  // [T]: positions of the rows in their texts
  // [T]; this array and the ones below have the meaning that they have in DeviceBatch.
  int32_t* row_sequences = nullptr;
  int32_t* state_slots = nullptr;
  int32_t* context_lens = nullptr;
  int32_t* kv_lens = nullptr;
  int32_t* logit_rows = nullptr;
  uint64_t* tree_masks = nullptr;
};

// A row of the step that needs a token drawn in the previous step.
struct FedRow {
  static constexpr int32_t kIdAlone = -1, kWanted = -2;
  static constexpr int32_t kNothing = -1;

  int32_t row = 0;
  // The sequence whose only row is `row`. kIdAlone: only the row's id (and tree mask) is written.
  // kWanted: `row` is an index of logit_rows, whose entry is reduced by `missing`; other members
  // are not read.
  int32_t sequence = 0;
  int32_t logit_row = 0;  // row of the logits from which this step draws the sequence's next token
  int32_t from = 0;       // index of the needed token in FeedDrawnArgs::drawn
  int32_t endings_begin = 0;  // index in `endings` of the first token that ends the text
  int32_t num_endings = 0;
  // Index in `missing` of how far the row's position moves back; kNothing: it stays.
  int32_t missing_of = kNothing;

  friend bool operator==(const FedRow&, const FedRow&) = default;
};

// All pointers are into memory of the context's device.
struct FeedDrawnArgs {
  const FedRow* fed = nullptr;
  int64_t num_fed = 0;
  const int32_t* endings = nullptr;
  // SampleRowsArgs::drawn of the previous step; -1: no token was drawn.
  const int32_t* drawn = nullptr;
  // Maps a drawn token to its id in the vocabulary; null: they are equal.
  const int32_t* drawn_ids = nullptr;
  // Indexed as `drawn`: the tree mask that the fed row gets; null: no trees.
  const uint64_t* masks = nullptr;
  // WalkDraftsArgs::missing: number of rejected drafts of each sequence.
  const int32_t* missing = nullptr;
  DeviceBatchRows rows;      // the arrays of the step that are changed
  int32_t* ended = nullptr;  // [R], SampleRowsArgs::ended; set for the logit rows of fed sequences
};

}  // namespace heddle::ops
