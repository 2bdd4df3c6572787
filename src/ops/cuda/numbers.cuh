// SPDX-License-Identifier: Apache-2.0
// CUDA types of the floating dtypes, and conversions that round to nearest, ties to even. Kernels
// read numbers as fp32 and round results once.
// Each thread calls these functions for itself. quick_silu() needs two special function
// instructions instead of an expf() and a division, for results that are rounded to 16 bits.
// with_scalar() is host code that selects the kernel compiled for a tensor's dtype.
#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "core/check.h"
#include "core/dtype.h"

namespace heddle::ops {

using CudaBf16 = __nv_bfloat16;
using CudaF16 = __half;
using CudaE4M3 = __nv_fp8_e4m3;

__device__ inline float as_float(float value) { return value; }

__device__ inline float as_float(CudaBf16 value) { return __bfloat162float(value); }

__device__ inline float as_float(CudaF16 value) { return __half2float(value); }

__device__ inline float as_float(CudaE4M3 value) { return static_cast<float>(value); }

// x sigmoid(x) from the hardware's approximate functions, error about 2^-21. Subnormal intermediate
// values become 0, which only changes results below 2^-119.
__device__ inline float quick_silu(float x) {
  float exponential;
  float share;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(exponential) : "f"(x * -1.44269504f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(share) : "f"(1.0f + exponential));
  return x * share;
}

template <typename Scalar>
__device__ inline Scalar rounded(float value);

template <>
__device__ inline float rounded<float>(float value) {
  return value;
}

template <>
__device__ inline CudaBf16 rounded<CudaBf16>(float value) {
  return __float2bfloat16_rn(value);
}

template <>
__device__ inline CudaF16 rounded<CudaF16>(float value) {
  return __float2half_rn(value);
}

template <>
__device__ inline CudaE4M3 rounded<CudaE4M3>(float value) {
  return CudaE4M3(value);  // the conversion saturates at +-448
}

// Rounds `value` to f32, bf16 or f16 and returns the result as fp32.
__device__ inline float rounded_as(DType dtype, float value) {
  switch (dtype) {
    case DType::kBf16:
      return as_float(rounded<CudaBf16>(value));
    case DType::kF16:
      return as_float(rounded<CudaF16>(value));
    default:
      return value;
  }
}

template <typename Scalar>
struct ScalarTag {
  using type = Scalar;
};

// Calls body(ScalarTag<type>()) with the type of a floating dtype: f32, bf16 or f16.
template <typename Body>
auto with_scalar(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::kF32:
      return body(ScalarTag<float>());
    case DType::kBf16:
      return body(ScalarTag<CudaBf16>());
    default:
      HEDDLE_CHECK(dtype == DType::kF16);  // the op's contract allows no other dtype
      return body(ScalarTag<CudaF16>());
  }
}

}  // namespace heddle::ops
