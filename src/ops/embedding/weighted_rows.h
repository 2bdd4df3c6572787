// SPDX-License-Identifier: Apache-2.0
// y[t, h] = sum over k of weights[t, k] * table[rows[t, k], h]
// Resampling of a table: the learned positions of a picture's patches are given for one grid and
// interpolated for others, from 4 neighbours (bilinear) or 16 (bicubic).
#pragma once

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

struct WeightedRowsArgs {
  TensorView table;     // [N, H] f32, bf16 or f16
  TensorView rows;      // [T, K] i32, each in [0, N)
  TensorView weights;   // [T, K] f32
  MutableTensorView y;  // [T, H] activations(context)
};

// Summed in fp32 in the order of k, products rounded before they are added. Moves T*K*H elements
// of the table, mostly from the cache, and T*H of y. Allocates nothing. Error: kInvalidArgument,
// naming the tensor or the row that is not there; kUnimplemented on CUDA.
Status weighted_rows(Context& context, const WeightedRowsArgs& args);

}  // namespace heddle::ops
