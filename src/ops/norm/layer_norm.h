// SPDX-License-Identifier: Apache-2.0
// y[t, h] = (x[t, h] - m) / sqrt(v + epsilon) * weight[h] + bias[h]
// m = mean over h of x[t, h],  v = mean over h of (x[t, h] - m)^2
// Ba, Kiros and Hinton, "Layer Normalization", arXiv:1607.06450.
#pragma once

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

struct LayerNormArgs {
  TensorView x;         // input [T, H], activations(context)
  TensorView weight;    // factor of each column [H] f32
  TensorView bias;      // bias [H] f32; without memory: none
  MutableTensorView y;  // output [T, H] as x; may be x itself
  float epsilon = 1e-5f;
};

// Rows are independent of each other and summed in fp32, in an order that depends on H alone, so
// that exact mode has no kernels of its own. The mean is computed first, then the squares of the
// differences to it. Reads and writes 2*T*H elements: bandwidth-bound. Allocates nothing. Error:
// kInvalidArgument, naming the tensor and the dimension that disagree.
Status layer_norm(Context& context, const LayerNormArgs& args);
Status layer_norm_cpu(CpuContext& context, const LayerNormArgs& args);    // args already checked
Status layer_norm_cuda(CudaContext& context, const LayerNormArgs& args);  // args already checked

}  // namespace heddle::ops
