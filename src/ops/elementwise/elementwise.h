// SPDX-License-Identifier: Apache-2.0
// Ops that compute each element of y from one element of each input:
//     kAdd         y = a + b
//     kMul         y = a * b
//     kScale       y = a * factor
//     kSigmoid     y = 1 / (1 + exp(-a))
//     kSigmoidMul  y = a * sigmoid(b)                      output gates
//     kSiluMul     y = silu(a) * b, silu(x) = x*sigmoid(x)  Shazeer, "GLU Variants",
//     arXiv:2002.05202
//     kBoundedSiluMul  y = min(silu(a), factor) * clamp(b, -factor, factor)        Step 3.5
//     kGeluMul     y = gelu(a) * b, gelu(x) = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
//     Hendrycks and Gimpel, arXiv:1606.08415
//     kErfGeluMul  y = erf_gelu(a) * b, erf_gelu(x) = x/2 (1 + erf(x / sqrt(2)))         as defined
//     kGelu, kErfGelu  y = factor * gelu(a), y = factor * erf_gelu(a)
//     kSquaredRelu y = max(a, 0)^2                          So et al., "Primer", arXiv:2109.08668
//     kSoftcap     y = factor * tanh(a / factor)            Bello et al., arXiv:1611.09940
// b is as wide as a or, for kMul and kSigmoidMul, narrower by a factor n: each column of b applies
// to n neighbouring columns of a.
#pragma once

#include "core/tensor.h"
#include "ops/context.h"
#include "ops/op_def.h"

namespace heddle::ops {

enum class ElementwiseKind : uint8_t {
  kAdd,
  kMul,
  kScale,
  kSigmoid,
  kSigmoidMul,
  kSiluMul,
  kBoundedSiluMul,
  kGeluMul,
  kErfGeluMul,
  kGelu,
  kErfGelu,
  kSquaredRelu,
  kSoftcap,
};

// Whether the op has only the input a.
constexpr bool is_unary(ElementwiseKind kind) {
  return kind == ElementwiseKind::kScale || kind == ElementwiseKind::kSigmoid ||
         kind == ElementwiseKind::kGelu || kind == ElementwiseKind::kErfGelu ||
         kind == ElementwiseKind::kSquaredRelu || kind == ElementwiseKind::kSoftcap;
}

struct ElementwiseArgs {
  ElementwiseKind kind = ElementwiseKind::kAdd;
  TensorView a;         // [T, N] activations(context)
  TensorView b;         // [T, N] or [T, N/n] likewise, of a's dtype or not; none where is_unary()
  MutableTensorView y;  // [T, N] likewise, of a's dtype or not; may be a or b, if of its dtype
  // The factor of kScale, kGelu and kErfGelu; the bound of kSoftcap and kBoundedSiluMul, which is
  // positive.
  float factor = 1;
};

// Computed in fp32 and rounded once. Elements are independent. Reads and writes up to 3*T*N
// elements: bandwidth-bound. Allocates nothing. Error: kInvalidArgument, naming the tensor and the
// dimension that disagree.
Status elementwise(Context& context, const ElementwiseArgs& args);
Status elementwise_cpu(CpuContext& context, const ElementwiseArgs& args);    // args already checked
Status elementwise_cuda(CudaContext& context, const ElementwiseArgs& args);  // args already checked

// The arguments of a graph node "sigmoid_mul" or "silu_mul".
ElementwiseArgs sigmoid_mul_args(const LaunchArgs& args);
ElementwiseArgs silu_mul_args(const LaunchArgs& args);

}  // namespace heddle::ops
