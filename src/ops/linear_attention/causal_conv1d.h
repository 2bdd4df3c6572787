// SPDX-License-Identifier: Apache-2.0
// The short causal convolution of a recurrent layer, channel by channel, with SiLU or without:
//
//   y[t, c] = silu(sum over m < W of weight[c, m] * u[t - (W - 1) + m, c] + bias[c])
//
// where u is x preceded by the last W - 1 inputs of the sequence, which the state keeps.
#pragma once

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/forward_context.h"

namespace heddle::ops {

struct CausalConv1dArgs {
  TensorView x;         // [T, C] activations(context)
  TensorView weight;    // [C, W] f32, W from 2 to 8; weight[c, W - 1] multiplies the current token
  TensorView bias;      // [C] f32, or without memory
  MutableTensorView y;  // [T, C] as x; not x itself
  bool silu = true;     // false: y is the sum itself
  StateLayer state;  // conv [slots, W - 1, C]: oldest first; read as zeros when no token precedes
  SnapshotLayer snapshots;  // where snapshots are written; without memory: to `state`
  const ForwardContext* forward = nullptr;
};

// The slot of each sequence becomes its last W - 1 inputs, and a snapshot's slot those after
// exactly num_tokens. A node of a tree convolves its own ancestors, and its slot gets the last
// inputs on its way (ForwardContext::tree_starts). A row's result depends on its W inputs alone:
// bitwise the same however tokens are chunked. Allocates nothing. Reads x and writes y once: bound
// by the SiLU, if any, then by memory. Error: kInvalidArgument, naming the tensor that does not
// fit; the ids of the batch are taken for checked (check_batch()).
Status causal_conv1d(Context& context, const CausalConv1dArgs& args);
Status causal_conv1d_cpu(CpuContext& context, const CausalConv1dArgs& args);    // args checked
Status causal_conv1d_cuda(CudaContext& context, const CausalConv1dArgs& args);  // args checked

}  // namespace heddle::ops
