// SPDX-License-Identifier: Apache-2.0
// AttentionUnit: the unit of work of paged attention, up to kUnitRows rows of one sequence and one
// kv head. A row is a pair (token, query head of the group), numbered token by token.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/attention/paged_attention.h"

namespace heddle::ops {

inline constexpr int64_t kUnitRows = 64;
inline constexpr int64_t kMaxLanes = 16;  // most floats that a vector of any instruction set has

struct AttentionUnit {
  int64_t sequence = 0;
  int64_t kv_head = 0;
  // Index of the unit's first row: token * group + query head, counted within the sequence.
  int64_t first_row = 0;
  int64_t num_rows = 0;
};

// Tokens [begin, end) of a sequence.
struct TokenRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// The tokens that the token at `position` attends to.
inline TokenRange visible_tokens(int64_t position, int64_t window) {
  return {.begin = window > 0 ? std::max<int64_t>(0, position - window + 1) : 0,
          .end = position + 1};
}

// The tokens that any row of a unit attends to, as one range.
inline TokenRange visible_tokens(const PagedAttentionArgs& args, const AttentionUnit& unit,
                                 int64_t group) {
  const int64_t first_row = unit.first_row / group;
  const int64_t last_row = (unit.first_row + unit.num_rows - 1) / group;
  const ForwardContext& forward = *args.forward;
  int64_t first = forward.position(unit.sequence, first_row);
  int64_t last = forward.position(unit.sequence, last_row);
  if (forward.has_tree(unit.sequence)) {  // without a tree, the last row has the largest position
    for (int64_t row = first_row; row <= last_row; ++row) {
      first = std::min(first, forward.position(unit.sequence, row));
      last = std::max(last, forward.position(unit.sequence, row));
    }
  }
  return {.begin = visible_tokens(first, args.window).begin, .end = last + 1};
}

// State of the online softmax of a unit's rows.
struct AttentionState {
  float* max = nullptr;  // [kUnitRows] largest score so far
  float* sum = nullptr;  // [kUnitRows, kMaxLanes] sum of exp(score - max), one for each vector lane
  float* output = nullptr;  // [kUnitRows, padded Dv] sum of exp(score - max) * v
};

// Scratch memory of one worker thread. `padded` means rounded up to whole vectors; a slice is 64
// columns of values.
struct AttentionScratch {
  float* q = nullptr;       // [kUnitRows, padded D] queries times scale
  float* scores = nullptr;  // [kUnitRows, kAttentionBlock] scores of one block
  float* k = nullptr;       // [kAttentionBlock, padded D] keys of a block as f32
  float* v = nullptr;       // [slices, kAttentionBlock, 64] values of a block as f32
  AttentionState segment;
  AttentionState joined;
};

inline int64_t padded_head_dim(int64_t head_dim) {
  return (head_dim + kMaxLanes - 1) / kMaxLanes * kMaxLanes;
}

// CUDA: columns of the values that a block keeps in registers; wider values use several blocks.
inline constexpr int64_t kAttentionColumns = 512;

// CUDA: most pairs of a row and a segment that separate blocks compute; the workspace holds their
// results. Steps with more pairs have enough rows to keep the device busy without splitting.
inline constexpr int64_t kAttentionParts = 8192;

// Width of a head's values.
inline int64_t value_dim_of(const PagedAttentionArgs& args) {
  return args.value_dim > 0 ? args.value_dim : args.head_dim;
}

// The leading channels of a key that are its value; 0: values have separate rows.
inline int64_t num_value_channels(const PagedAttentionArgs& args) {
  return args.kv.v.data == nullptr ? value_dim_of(args) : 0;
}

}  // namespace heddle::ops
