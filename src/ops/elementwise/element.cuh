// SPDX-License-Identifier: Apache-2.0
// One element of an elementwise op: a + b, a * b, sigmoid(a), a sigmoid(b), silu(a) b.
// For the op (elementwise_cuda.cu) and for kernels that compute it on the way into a product
// (gemm/skinny_product.cu): the same operations, so the same bits. Each thread calls for itself.
#pragma once

#include "ops/elementwise/elementwise.h"

namespace heddle::ops {

__device__ inline float sigmoid_of(float x) { return 1.0f / (1.0f + expf(-x)); }

__device__ inline float element_of(ElementwiseKind kind, float a, float b) {
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
    default:
      return a / (1.0f + expf(-a)) * b;
  }
}

}  // namespace heddle::ops
