// SPDX-License-Identifier: Apache-2.0
// Reads and writes of tensors whose dtype only the launch knows: a branch that all threads take
// alike, in place of one kernel for each dtype.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "ops/cuda/numbers.cuh"

namespace heddle::ops {

// Number `index` of f32, bf16, f16 or e4m3 numbers.
__device__ inline float load_number(const void* data, DType dtype, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[index];
    case DType::kBf16:
      return as_float(static_cast<const CudaBf16*>(data)[index]);
    case DType::kF16:
      return as_float(static_cast<const CudaF16*>(data)[index]);
    default:
      return as_float(static_cast<const CudaE4M3*>(data)[index]);
  }
}

// Rounds to nearest, ties to even.
__device__ inline void store_number(void* data, DType dtype, int64_t index, float value) {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(data)[index] = value;
      return;
    case DType::kBf16:
      static_cast<CudaBf16*>(data)[index] = rounded<CudaBf16>(value);
      return;
    case DType::kF16:
      static_cast<CudaF16*>(data)[index] = rounded<CudaF16>(value);
      return;
    default:
      static_cast<CudaE4M3*>(data)[index] = rounded<CudaE4M3>(value);
  }
}

}  // namespace heddle::ops
