// SPDX-License-Identifier: Apache-2.0
// The norm after the recurrence: every head is normalised, multiplied by a weight, then gated.
//
//   y[t, n] = weight * x[t, n] / sqrt(mean(x[t, n]^2) + epsilon) * silu(z[t, n])
//
// Kimi Delta Attention has sigmoid(z) in place of silu(z). Mamba-2 gates before or after the norm:
//
//   y[t, n] = weight[n] * u / sqrt(mean(u^2) + epsilon), u = x[t, n] * silu(z[t, n])
//
// and its weight may differ between groups of channels.
#pragma once

#include <cstdint>

#include "core/tensor.h"
#include "ops/context.h"

namespace heddle::ops {

enum class NormGate : uint8_t { kSilu, kSigmoid };

struct GatedRmsNormArgs {
  TensorView x;  // input [T, N * D], activations(context)
  TensorView z;  // [T, N * D] as x, the gate
  // [V] f32: V = D if all heads share it, V = N * D if each has its own; used as it is, not as 1 +
  // weight
  TensorView weight;
  MutableTensorView y;  // output [T, N * D] as x; may be x or z itself
  float epsilon = 1e-6f;
  NormGate gate = NormGate::kSilu;
  bool gate_first = false;
  int64_t group_width = 0;  // D, channels of a group; 0: the width of the weight
};

// Sums in fp32, in an order that depends on D alone. Bound by the SiLU, then by memory; allocates
// nothing. Error: kInvalidArgument, naming the tensor and the dimension that disagree.
Status gated_rms_norm(Context& context, const GatedRmsNormArgs& args);
Status gated_rms_norm_cpu(CpuContext& context, const GatedRmsNormArgs& args);    // args checked
Status gated_rms_norm_cuda(CudaContext& context, const GatedRmsNormArgs& args);  // args checked

}  // namespace heddle::ops
