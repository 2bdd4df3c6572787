// SPDX-License-Identifier: Apache-2.0
// The short causal convolution of a recurrent layer, each channel by itself, with or without SiLU:
//
//   y[t, c] = silu(sum over m < W of weight[c, m] * u[t - (W - 1) + m, c] + bias[c])
//
// where u is x preceded by the sequence's last W - 1 inputs, which are stored in its state.
#pragma once

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/forward_context.h"

namespace heddle::ops {

struct CausalConv1dArgs {
  TensorView x;         // input [T, C], activations(context)
  TensorView weight;    // [C, W] f32, W from 2 to 8; weight[c, W - 1] multiplies the current token
  TensorView bias;      // bias [C] f32; without memory: none
  MutableTensorView y;  // output [T, C] as x; must not be x itself
  bool silu = true;     // false: y is the sum without an activation
  StateLayer state;     // conv [slots, W - 1, C], oldest first; taken as zeros if no token precedes
  SnapshotLayer snapshots;  // pool that snapshots are written to; without memory: `state`
  const ForwardContext* forward = nullptr;
};

// Writes the sequence's last W - 1 inputs to its state slot, and to a snapshot's slot the last W -
// 1 inputs after exactly num_tokens. A node of a tree is convolved with its ancestors, and its slot
// gets the last inputs on its path (ForwardContext::tree_starts). A row's result depends on its W
// inputs alone: it is bitwise the same however prompts are cut into chunks. Allocates nothing.
// Reads x and writes y once: bound by the SiLU, if any, then by memory. Error: kInvalidArgument,
// naming the tensor that does not fit; the ids of the batch must have been checked (check_batch()).
Status causal_conv1d(Context& context, const CausalConv1dArgs& args);
Status causal_conv1d_cpu(CpuContext& context, const CausalConv1dArgs& args);    // args checked
Status causal_conv1d_cuda(CudaContext& context, const CausalConv1dArgs& args);  // args checked

}  // namespace heddle::ops
