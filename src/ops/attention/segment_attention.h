// SPDX-License-Identifier: Apache-2.0
// y[s, h] = sum over the rows r of s's segment of p[r] v[r, h]
// p = softmax over these rows of (scale q[s, h] . k[r, h])
// Vaswani et al., arXiv:1706.03762, without a mask: rows of a segment see each other in both
// directions and no other row. Rows of several pictures, or of a picture's windows, are packed end
// to end. There is no KV cache: no keys or values are kept after the op.
#pragma once

#include <cstddef>
#include <span>

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/op_def.h"

namespace heddle::ops {

struct SegmentAttentionArgs {
  TensorView q;                    // [S, N*D] activations(context)
  TensorView k;                    // [S, N*D] as q
  TensorView v;                    // [S, N*D] as q
  TensorView segments;             // [S, 2] i32: the first row of each row's segment, and its end
  MutableTensorView y;             // [S, N*D] as q; must not overlap the other tensors
  int64_t head_dim = 0;            // D, a multiple of 8
  float scale = 1;                 // factor of q . k
  std::span<std::byte> workspace;  // segment_attention_workspace_bytes()
};

// Keys are processed in blocks that are counted from the start of their segment, and sums are fp32.
// So a row's bits depend only on its segment, and exact mode changes nothing. Cost: 4 * D
// operations for each head and pair of rows of a segment. Allocates nothing. Error:
// kInvalidArgument, naming the tensor, the row or the dimension that does not fit; kUnimplemented
// on CUDA.
Status segment_attention(Context& context, const SegmentAttentionArgs& args);

// The CPU implementation, for arguments that segment_attention() has checked.
Status segment_attention_cpu(CpuContext& context, const SegmentAttentionArgs& args);

// The size of the workspace for up to `num_rows` rows; 0 if the context is not a CpuContext.
int64_t segment_attention_workspace_bytes(const Context& context, int64_t num_rows,
                                          int64_t head_dim);

}  // namespace heddle::ops
