// SPDX-License-Identifier: Apache-2.0
// The two products with which attention works on latent rows instead of keys and values per head
// (DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434, section 2.1.2). A layer expands a latent row c to
// k_h = W_UK,h c and v_h = W_UV,h c. Instead, W_UK can be applied to the queries before attention
// and W_UV to its output:
//
//   absorb_query:   y[t, h] = [W_UK,h' q_nope[t, h] | q_pe[t, h]], where q[t, h] = [q_nope | q_pe]
//
//   expand_values:  y[t, h] = W_UV,h o[t, h]
//
// The weight has the checkpoint's layout: for each head h the Dn rows of W_UK,h, then the Dv rows
// of W_UV,h.
#pragma once

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

struct LatentProjectionArgs {
  TensorView x;         // absorb: q [T, N * (Dn + Dr)]; expand: o [T, N * C]; activations(context)
  TensorView weight;    // [N * (Dn + Dv), C] f32, bf16 or f16; used without a copy
  MutableTensorView y;  // absorb: [T, N * (C + Dr)]; expand: [T, N * Dv]; as x; must not overlap x
  int64_t num_heads = 0;  // N, number of query heads
  int64_t key_dim = 0;    // Dn: the channels of a key head that come from the latent row
};

// Sums are in fp32. Each row is computed by the same operations whatever other rows the step has,
// so that exact mode uses the same kernels. On the CPU each product reads its half of the weight
// once per 64 rows: decode is bound by that. Work is spread over heads and rows; allocates nothing.
// Error: kInvalidArgument, naming the tensor or size that does not fit.
Status absorb_query(Context& context, const LatentProjectionArgs& args);
Status absorb_query_cpu(CpuContext& context, const LatentProjectionArgs& args);    // args checked
Status absorb_query_cuda(CudaContext& context, const LatentProjectionArgs& args);  // args checked

Status expand_values(Context& context, const LatentProjectionArgs& args);
Status expand_values_cpu(CpuContext& context, const LatentProjectionArgs& args);    // args checked
Status expand_values_cuda(CudaContext& context, const LatentProjectionArgs& args);  // args checked

}  // namespace heddle::ops
