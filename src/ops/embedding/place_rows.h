// SPDX-License-Identifier: Apache-2.0
// Features of pictures among the rows of a step:
//   place_rows       y[t] = rows[t] < 0 ? x[t] : staged[rows[t]]
//   add_placed_rows  y[t] = rows[t] < 0 ? x[t] : x[t] + staged[rows[t]]
#pragma once

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

struct PlaceRowsArgs {
  TensorView x;         // [T, H] activations(context)
  TensorView rows;      // [T] i32, each below S
  TensorView staged;    // [S, H] of the type of x
  MutableTensorView y;  // [T, H] of the type of x; may be x itself
  bool adds = false;    // false: a staged row replaces the row of x; true: it is added, in fp32
};

// Rows are independent. Moves up to 3*T*H elements. Allocates nothing. Error: kInvalidArgument with
// the tensor, or with a row that `staged` does not have; kUnimplemented on CUDA.
Status place_rows(Context& context, const PlaceRowsArgs& args);

}  // namespace heddle::ops
