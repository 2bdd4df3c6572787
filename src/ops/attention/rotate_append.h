// SPDX-License-Identifier: Apache-2.0
// rotate_append: the steps between the projections of attention and the attention itself, in one
// launch on CUDA: it normalises and rotates queries and keys, and stores keys and values in their
// pages. The same numbers as by rope() and paged_attention()'s own append.
#pragma once

#include "ops/attention/paged_attention.h"
#include "ops/context.h"
#include "ops/rope/rope.h"

namespace heddle::ops {

// q.y is attention.q. k.y is not written, and attention.k not read.
struct RotateAppendArgs {
  RopeArgs q;
  RopeArgs k;
  PagedAttentionArgs attention;
};

// True for heads of one width and rotation that have separate values.
[[nodiscard]] bool rotate_append_fits(const RotateAppendArgs& args);

// Moves q twice, k and v in and out: 2 * (Nq + 2 * Nkv) * D elements a row, bandwidth-bound; a
// decode step pays for one launch instead of four.
Status rotate_append_cuda(CudaContext& context, const RotateAppendArgs& args);

}  // namespace heddle::ops
