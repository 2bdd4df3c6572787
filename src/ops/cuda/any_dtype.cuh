// SPDX-License-Identifier: Apache-2.0
// load_number(), load_numbers() and store_number() read and write single numbers of tensors whose
// dtype (f32, bf16, f16, e4m3) is known only at launch. Each thread calls them for itself. The
// branch on the dtype is the same for all threads; load_numbers() takes it once for kCount loads,
// so that they are in flight together. Used by kernels that would otherwise be compiled for every
// pair of dtypes. Kernels for one dtype are templates (with_scalar() in numbers.cuh) or move octets
// (rows.cuh).
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "ops/cuda/numbers.cuh"

namespace heddle::ops {

// Returns element `index` of an array of f32, bf16, f16 or e4m3 numbers.
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

template <typename Scalar, int kCount, typename IndexOf>
__device__ inline void load_numbers_as(const void* data, const IndexOf& index_of,
                                       float (&to)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int64_t index = index_of(i);
    to[i] = index >= 0 ? as_float(static_cast<const Scalar*>(data)[index]) : 0.0f;
  }
}

// to[i] = element index_of(i) of the array, or 0 if index_of(i) is negative. The branch on the
// dtype is taken once, so that all loads are in flight before the first result is used.
template <int kCount, typename IndexOf>
__device__ inline void load_numbers(const void* data, DType dtype, const IndexOf& index_of,
                                    float (&to)[kCount]) {
  switch (dtype) {
    case DType::kF32:
      return load_numbers_as<float>(data, index_of, to);
    case DType::kBf16:
      return load_numbers_as<CudaBf16>(data, index_of, to);
    case DType::kF16:
      return load_numbers_as<CudaF16>(data, index_of, to);
    default:
      return load_numbers_as<CudaE4M3>(data, index_of, to);
  }
}

// Stores a number as f32, bf16, f16 or e4m3, rounded to nearest, ties to even.
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
