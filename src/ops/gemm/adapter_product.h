// SPDX-License-Identifier: Apache-2.0
// The two products with which low-rank adapters of several requests change the output of a linear
// layer, row by row: Hu et al., "LoRA", arXiv:2106.09685; many adapters in one batch as in Chen et
// al., "Punica", arXiv:2310.18547.
//
//   adapter_shrink: h[t, j] = scales[s] * sum over k of x[t, k] * a[s, j, k]          s = slots[t]
//   adapter_expand: y[t, n] += sum over r of h[t, parts[s, w] * R + r] * b[s, w, r]   w = first + n
//
// A layer may join several layers that the adapter has apart, such as "q_proj" and "k_proj"; their
// outputs are columns of y in any order. Each of these P parts has R rows of a[s]. Column w of the
// layer belongs to part parts[s, w].
//
// A slot holds one adapter. A row with slot -1 has no adapter: its h is 0 and its y is unchanged.
#pragma once

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

struct AdapterShrinkArgs {
  TensorView x;         // [T, K]  activations(context); rows may be strided
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
  MutableTensorView y;  // [T, N]  fp32, changed in place; rows may be strided
  int64_t first = 0;    // y is columns [first, first + N) of the layer's W
};

// Sums are fp32, in an order that depends only on K (shrink) or R (expand). So a row's bits do not
// depend on other rows or on the number of threads, in any mode. Cost: bandwidth-bound;
// adapter_shrink() reads a[s] once for each run of rows with slot s, adapter_expand() reads b[s]
// once for each row. Allocates nothing. Error: kUnimplemented on other devices than the CPU;
// kInvalidArgument, naming the tensor and the dimension that do not match, or the index of a slot
// or part that does not exist.
Status adapter_shrink(Context& context, const AdapterShrinkArgs& args);
Status adapter_expand(Context& context, const AdapterExpandArgs& args);

}  // namespace heddle::ops
