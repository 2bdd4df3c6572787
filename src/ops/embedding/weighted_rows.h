// SPDX-License-Identifier: Apache-2.0
// y[t, h] = sum over k of weights[t, k] * table[rows[t, k], h]
// Resamples a table: a model has learned positions for one grid of patches, and they are
// interpolated for a picture of another size, from 4 neighbours (bilinear) or 16 (bicubic).
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

// Sums are fp32, in the order of k; products are rounded before they are added. Reads T*K*H
// elements of the table, mostly from the processor's caches, and writes T*H. Allocates nothing.
// Error: kInvalidArgument, naming the tensor that does not match or the row that the table does not
// have; kUnimplemented on CUDA.
Status weighted_rows(Context& context, const WeightedRowsArgs& args);

}  // namespace heddle::ops
