// SPDX-License-Identifier: Apache-2.0
// Device code for rows that are nodes of a draft tree (ForwardContext::tree_starts). A node's
// position is start + popcount(mask) - 1; its n-th ancestor is stored at the mask's n-th set bit.
// Each thread calls these functions for itself. Bytes: a mask a row, a start a sequence. place()
// takes one step for each position between the tree's start and the token, at most 63. In a step
// without trees nothing is read, and a token's index in the pages is its position.
#pragma once

#include <cstdint>

#include "ops/forward_context.h"

namespace heddle::ops {

// The tree nodes that a row attends to.
struct TreeNode {
  int64_t start = kNoTree;  // index in the sequence's pages at which the tree begins
  uint64_t mask = 0;        // nodes that the row attends to; 0: the row is not a node

  __device__ TreeNode(const DeviceBatch& batch, int64_t b, int64_t row) {
    if (batch.tree_masks == nullptr) return;
    mask = batch.tree_masks[row];
    if (mask != 0) start = batch.tree_starts[b];
  }

  // As ForwardContext::position(), for a row whose index in the pages is `place`.
  [[nodiscard]] __device__ int64_t position(int64_t place) const {
    return mask == 0 ? place : start + __popcll(mask) - 1;
  }

  // The index in the pages of the token that this row attends to at `position`.
  [[nodiscard]] __device__ int64_t place(int64_t position) const {
    if (position < start) return position;
    uint64_t left = mask;
    for (int64_t i = start; i < position; ++i) left &= left - 1;
    return start + __ffsll(static_cast<long long>(left)) - 1;
  }
};

// As ForwardContext::num_chain_rows(), for a sequence with `num_rows` rows.
inline __device__ int64_t num_chain_rows(const DeviceBatch& batch, int64_t b, int64_t num_rows) {
  if (batch.tree_starts == nullptr || batch.tree_starts[b] == kNoTree) return num_rows;
  const int64_t before = batch.tree_starts[b] - batch.context_lens[b];
  return before > 0 ? before : 0;
}

// As ForwardContext::parent_row(), for row `t` of the sequence.
inline __device__ int64_t parent_row(const DeviceBatch& batch, int64_t b, int64_t t) {
  const uint64_t mask =
      batch.tree_masks == nullptr ? 0 : batch.tree_masks[batch.query_start[b] + t];
  if (mask == 0) return t - 1;
  const int64_t own = 63 - __clzll(static_cast<long long>(mask));
  const uint64_t above = mask ^ uint64_t { 1 } << own;
  const int64_t first = batch.tree_starts[b] - batch.context_lens[b];
  return above == 0 ? first - 1 : first + 63 - __clzll(static_cast<long long>(above));
}

}  // namespace heddle::ops
