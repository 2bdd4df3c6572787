// SPDX-License-Identifier: Apache-2.0
// y[s, h] = sum over the rows r of s's segment of p[r] v[r, h]
// p = softmax over these rows of (scale q[s, h] . k[r, h])
// Vaswani et al., arXiv:1706.03762, without a mask: rows of a segment see each other in both
// directions and no other row. Rows of several pictures, or of a picture's windows, are packed end
// to end. There are no pages: nothing is kept after the op.
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
  MutableTensorView y;             // [S, N*D] as q; not the memory of another tensor
  int64_t head_dim = 0;            // D, a multiple of 8
  float scale = 1;                 // of q . k
  std::span<std::byte> workspace;  // segment_attention_workspace_bytes()
};

// Keys come in blocks counted from the start of their segment, and sums are fp32: a row's bits
// depend on its segment alone, so exact mode changes nothing. 4 * D operations for each head and
// pair of rows of a segment. Allocates nothing. Error: kInvalidArgument, naming the tensor, the row
// or the dimension that does not fit; kUnimplemented on CUDA.
Status segment_attention(Context& context, const SegmentAttentionArgs& args);
Status segment_attention_cpu(CpuContext& context, const SegmentAttentionArgs& args);  // checked

// For up to `num_rows` rows.
int64_t segment_attention_workspace_bytes(const Context& context, int64_t num_rows,
                                          int64_t head_dim);

}  // namespace heddle::ops
