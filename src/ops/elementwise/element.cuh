// SPDX-License-Identifier: Apache-2.0
// element_of(): one element of an elementwise op: a + b, a * b, sigmoid(a), a sigmoid(b), silu(a)
// b. Used by the op (elementwise_cuda.cu) and by kernels that compute it as the input of a product
// (gemm/skinny_product.cu): the same operations, so the same bits. Each thread calls it for itself.
#pragma once

#include "ops/elementwise/elementwise.h"

namespace heddle::ops {

__device__ inline float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ inline float gelu_of(float x) {
  const float cubic = x + 0.044715f * x * x * x;
  return x / (1.0f + expf(-1.59576912160573071f * cubic));
}

// min(silu(a), limit) * clamp(b, -limit, limit). Written with comparisons, which keep a NaN;
// fminf() and fmaxf() would lose it.
__device__ inline float bounded_silu_mul_of(float a, float b, float limit) {
  const float gate = a / (1.0f + expf(-a));
  const float bounded = b > limit ? limit : (b < -limit ? -limit : b);
  return (gate > limit ? limit : gate) * bounded;
}

// `factor` is ElementwiseArgs::factor.
__device__ inline float element_of(ElementwiseKind kind, float a, float b, float factor = 1) {
  switch (kind) {
    case ElementwiseKind::kAdd:
      return a + b;
    case ElementwiseKind::kMul:
    case ElementwiseKind::kScale:  // b is the factor
      return a * b;
    case ElementwiseKind::kSigmoid:
      return sigmoid_of(a);
    case ElementwiseKind::kSigmoidMul:
      return a * sigmoid_of(b);
    case ElementwiseKind::kBoundedSiluMul:
      return bounded_silu_mul_of(a, b, factor);
    case ElementwiseKind::kGelu:  // b is the factor, here and of kErfGelu
    case ElementwiseKind::kGeluMul:
      return gelu_of(a) * b;
    case ElementwiseKind::kErfGelu:
    case ElementwiseKind::kErfGeluMul:
      return 0.5f * a * (1.0f + erff(0.70710678118654752f * a)) * b;
    case ElementwiseKind::kSquaredRelu:
      return a < 0 ? 0.0f : a * a;
    case ElementwiseKind::kSoftcap:
      return factor * tanhf(a / factor);
    default:
      return a / (1.0f + expf(-a)) * b;
  }
}

}  // namespace heddle::ops
