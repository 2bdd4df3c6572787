// SPDX-License-Identifier: Apache-2.0
// Rows of a step that was launched before the tokens of the step before it were known. Rows that
// feed on one of them get it at the head of the step (bring_batch.h), from where sample_rows() left
// it; a row whose sequence ended with it, or whose draw failed, becomes padding
// (forward_context.h): nothing of its sequence is read or written, and it draws nothing. A draft
// ends no sequence.
//
// A step may also be laid out before it is known how many drafts of the one before hold
// (walk_drafts.h): as if all did. Then places move back there by as many as do not.
#pragma once

#include <cstdint>

namespace heddle::ops {

// Arrays of a DeviceBatch, and the ids and positions of its rows, that may change once they lie in
// memory of the device.
struct DeviceBatchRows {
  int32_t* ids = nullptr;            // [T]
  int32_t* positions = nullptr;      // [T]
  int32_t* row_sequences = nullptr;  // this array and those below are as in DeviceBatch
  int32_t* state_slots = nullptr;
  int32_t* context_lens = nullptr;
  int32_t* kv_lens = nullptr;
  int32_t* logit_rows = nullptr;
  uint64_t* tree_masks = nullptr;
};

// A row of the step that feeds on a drawn token.
struct FedRow {
  static constexpr int32_t kIdAlone = -1, kWanted = -2;
  static constexpr int32_t kNothing = -1;

  int32_t row = 0;
  // The sequence of the batch whose only row is `row`; kIdAlone: the row only gets its id; kWanted:
  // `row` is an index of logit_rows, and of the members below only missing_of counts.
  int32_t sequence = 0;
  int32_t logit_row = 0;      // row of the logits that the sequence draws from
  int32_t from = 0;           // index in FeedDrawnArgs::drawn
  int32_t endings_begin = 0;  // first of the tokens in `endings` that end the text
  int32_t num_endings = 0;
  int32_t missing_of = kNothing;  // index in `missing`: by that many the row's position moves back

  friend bool operator==(const FedRow&, const FedRow&) = default;
};

// Pointers lead into memory of the context's device.
struct FeedDrawnArgs {
  const FedRow* fed = nullptr;
  int64_t num_fed = 0;
  const int32_t* endings = nullptr;
  const int32_t* drawn = nullptr;      // SampleRowsArgs::drawn of the step before; -1: none
  const int32_t* drawn_ids = nullptr;  // the id that each drawn token stands for; null: itself
  const uint64_t* masks = nullptr;     // by drawn token: the tree mask of its row; null: no trees
  const int32_t* missing = nullptr;    // WalkDraftsArgs::missing
  DeviceBatchRows rows;                // arrays of the step
  int32_t* ended = nullptr;            // [R], SampleRowsArgs::ended; rows that feed are written
};

}  // namespace heddle::ops
