// SPDX-License-Identifier: Apache-2.0
// rotate_append: computes what is between the projections and the attention in one CUDA launch. It
// normalises and rotates queries and keys, and appends keys and values to their pages. Its numbers
// are the same as those of rope() followed by the append of paged_attention().
#pragma once

#include "ops/attention/paged_attention.h"
#include "ops/context.h"
#include "ops/rope/rope.h"

namespace heddle::ops {

// q.y must be attention.q. k.y is not written, and attention.k is not read.
struct RotateAppendArgs {
  RopeArgs q;
  RopeArgs k;
  PagedAttentionArgs attention;
};

// True if queries and keys have heads of the same width and rotation, and values are not a part of
// the keys.
[[nodiscard]] bool rotate_append_fits(const RotateAppendArgs& args);

// Reads and writes q, k and v: 2 * (Nq + 2 * Nkv) * D elements a row, bandwidth-bound. A decode
// step has one launch instead of four.
Status rotate_append_cuda(CudaContext& context, const RotateAppendArgs& args);

}  // namespace heddle::ops
