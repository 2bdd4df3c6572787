// SPDX-License-Identifier: Apache-2.0
// The two products with which low-rank adapters of several requests change the output of a linear
// layer, row by row: Hu et al., "LoRA", arXiv:2106.09685; many adapters in one batch as in Chen et
// al., "Punica", arXiv:2310.18547.
//
//   adapter_shrink: h[t, j] = scales[s] * sum over k of x[t, k] * a[s, j, k]          s = slots[t]
//   adapter_expand: y[t, n] += sum over r of h[t, parts[s, w] * R + r] * b[s, w, r]   w = first + n
//
// A layer may be several layers of the adapter's model, "q_proj" and "k_proj", whose outputs are
// columns of y in any order. Each of these P parts has R rows of a[s]; parts[s, w] says to which
// part column w of the layer belongs.
//
// A slot holds one adapter. A row whose slot is -1 has none: h is 0 there, and y keeps its bits.
#pragma once

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

struct AdapterShrinkArgs {
  TensorView x;         // [T, K]  activations(context); rows may be a column range
  TensorView a;         // [S, J, K]  dense; fp32, bf16 or fp16; J = P * R
  TensorView slots;     // [T]     int32, -1 to S - 1
  TensorView scales;    // [S]     fp32
  MutableTensorView h;  // [T, J]  fp32
};

struct AdapterExpandArgs {
  TensorView h;         // [T, J]  fp32, as adapter_shrink() made it
  TensorView b;         // [S, W, R]  dense; fp32, bf16 or fp16; R divides J
  TensorView parts;     // [S, W]  dense int32, 0 to J / R - 1; neighbouring columns of one part are
                        // fast
  TensorView slots;     // [T]     int32, -1 to S - 1
  MutableTensorView y;  // [T, N]  fp32, changed in place; rows may be a column range
  int64_t first = 0;    // y is columns [first, first + N) of the layer's W
};

// Sums are fp32 in an order that depends on K, or on R, alone: a row's bits depend neither on the
// other rows nor on the threads, in every mode. On the CPU only; elsewhere kUnimplemented. Cost:
// bandwidth-bound; reads a[s] and b[s] once for each run of rows with slot s, or b[s] once a row.
// Allocates nothing. Error: kInvalidArgument, naming the tensor and the dimension that disagree, or
// the row or column whose slot or part there is not.
Status adapter_shrink(Context& context, const AdapterShrinkArgs& args);
Status adapter_expand(Context& context, const AdapterExpandArgs& args);

}  // namespace heddle::ops
