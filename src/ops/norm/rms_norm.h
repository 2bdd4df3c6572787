// SPDX-License-Identifier: Apache-2.0
// y[t, g, h] = x[t, g, h] / sqrt(mean over h of x[t, g, h]^2 + epsilon) * weight[h]
// Zhang and Sennrich, "Root Mean Square Layer Normalization", arXiv:1910.07467.
//
// A row has one or several groups of H columns (several for norms per head). Checkpoints whose
// weights are centred at zero are loaded as 1 + w, so that one formula serves all. With a residual,
// x is first added to it:
//     residual += x;  y = norm(residual)
#pragma once

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/op_def.h"

namespace heddle::ops {

struct RmsNormArgs {
  TensorView x;  // input [T, G*H], activations(context)
  // [T, G*H] as x, the sum is stored in it; without memory: no residual.
  MutableTensorView residual;
  TensorView weight;    // factor of each column of a group [H] f32
  MutableTensorView y;  // output [T, G*H] as x; may be x itself
  float epsilon = 1e-6f;
};

// Rows are independent of each other and summed in fp32, in an order that depends on H alone, so
// that exact mode has no kernels of its own. The residual is rounded to its dtype before it is
// normalised. Reads and writes 2*T*G*H elements (4*T*G*H with a residual), the least possible:
// bandwidth-bound. Allocates nothing. Error: kInvalidArgument, naming the tensor and the dimension
// that disagree.
Status rms_norm(Context& context, const RmsNormArgs& args);
Status rms_norm_cpu(CpuContext& context, const RmsNormArgs& args);    // args already checked
Status rms_norm_cuda(CudaContext& context, const RmsNormArgs& args);  // args already checked

// The arguments of a graph node "rms_norm" or "add_rms_norm".
RmsNormArgs rms_norm_args(const LaunchArgs& args);
RmsNormArgs add_rms_norm_args(const LaunchArgs& args);

}  // namespace heddle::ops
