// SPDX-License-Identifier: Apache-2.0
// Reads and writes rows of floating-point tensors eight neighbouring elements (an octet) at a time:
// 16-byte loads and stores if the rows are 16-byte aligned, single elements otherwise and at the
// end of a row. A thread processes an octet: 16 bytes of a 16-bit dtype or 32 of fp32, in eight
// fp32 registers. SourceRows and TargetRows branch on the dtype at run time, for kernels that only
// move elements; load_octet() and store_octet() are templates.
#pragma once

#include <cstring>

#include "core/tensor.h"
#include "ops/cuda/numbers.cuh"

namespace heddle::ops {

inline constexpr int kOctet = 8;

// Whether every row is 16-byte aligned.
inline bool rows_are_aligned(const TensorView& x) {
  const bool first = reinterpret_cast<uintptr_t>(x.data) % 16 == 0;
  return first && (x.shape[0] <= 1 || bytes_of(x.dtype, x.row_stride) % 16 == 0);
}

// The two numbers in a word; the first one is in the lower half.
__device__ inline float2 unpacked(uint32_t word, ScalarTag<CudaBf16>) {
  return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

__device__ inline float2 unpacked(uint32_t word, ScalarTag<CudaF16>) {
  __half2 pair;
  memcpy(&pair, &word, sizeof(pair));
  return __half22float2(pair);
}

__device__ inline uint32_t packed(float low, float high, ScalarTag<CudaBf16>) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  uint32_t word;
  memcpy(&word, &pair, sizeof(word));
  return word;
}

__device__ inline uint32_t packed(float low, float high, ScalarTag<CudaF16>) {
  const __half2 pair = __floats2half2_rn(low, high);
  uint32_t word;
  memcpy(&word, &pair, sizeof(word));
  return word;
}

// Loads eight elements from a 16-byte aligned address.
template <typename Scalar>
__device__ inline void load_octet(const Scalar* from, float (&values)[kOctet]) {
  if constexpr (sizeof(Scalar) == 4) {
    const float4 low = reinterpret_cast<const float4*>(from)[0];
    const float4 high = reinterpret_cast<const float4*>(from)[1];
    values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
    values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
  } else {
    const uint4 words = *reinterpret_cast<const uint4*>(from);
    const float2 a = unpacked(words.x, ScalarTag<Scalar>());
    const float2 b = unpacked(words.y, ScalarTag<Scalar>());
    const float2 c = unpacked(words.z, ScalarTag<Scalar>());
    const float2 d = unpacked(words.w, ScalarTag<Scalar>());
    values[0] = a.x, values[1] = a.y, values[2] = b.x, values[3] = b.y;
    values[4] = c.x, values[5] = c.y, values[6] = d.x, values[7] = d.y;
  }
}

// Loads the first `count` elements one by one and sets the others to zero.
template <typename Scalar>
__device__ inline void load_elements(const Scalar* from, int64_t count, float (&values)[kOctet]) {
#pragma unroll
  for (int i = 0; i < kOctet; ++i) values[i] = i < count ? as_float(from[i]) : 0.0f;
}

template <typename Scalar>
__device__ inline void store_octet(const float (&values)[kOctet], Scalar* to) {
  if constexpr (sizeof(Scalar) == 4) {
    reinterpret_cast<float4*>(to)[0] = make_float4(values[0], values[1], values[2], values[3]);
    reinterpret_cast<float4*>(to)[1] = make_float4(values[4], values[5], values[6], values[7]);
  } else {
    const ScalarTag<Scalar> tag;
    *reinterpret_cast<uint4*>(to) =
        make_uint4(packed(values[0], values[1], tag), packed(values[2], values[3], tag),
                   packed(values[4], values[5], tag), packed(values[6], values[7], tag));
  }
}

template <typename Scalar>
__device__ inline void store_elements(const float (&values)[kOctet], int64_t count, Scalar* to) {
#pragma unroll
  for (int i = 0; i < kOctet; ++i) {
    if (i < count) to[i] = rounded<Scalar>(values[i]);
  }
}

// A tensor [T, N] with a dtype known only at launch; the branch on it is the same for all threads.
// For kernels that only move elements.
struct SourceRows {
  const void* data = nullptr;
  int64_t stride = 0;
  DType dtype = DType::kF32;
  bool aligned = false;

  static SourceRows of(const TensorView& x) {
    return {x.data, x.row_stride, x.dtype, rows_are_aligned(x)};
  }

  // Loads up to eight elements of row t from column n on, a multiple of 8.
  __device__ void load(int64_t t, int64_t n, int64_t count, float (&values)[kOctet]) const {
    switch (dtype) {
      case DType::kBf16:
        return load_as<CudaBf16>(t * stride + n, count, values);
      case DType::kF16:
        return load_as<CudaF16>(t * stride + n, count, values);
      default:
        return load_as<float>(t * stride + n, count, values);
    }
  }

 private:
  template <typename Scalar>
  __device__ void load_as(int64_t index, int64_t count, float (&values)[kOctet]) const {
    const Scalar* from = static_cast<const Scalar*>(data) + index;
    if (aligned && count >= kOctet) {
      load_octet(from, values);
    } else {
      load_elements(from, count, values);
    }
  }
};

struct TargetRows {
  void* data = nullptr;
  int64_t stride = 0;
  DType dtype = DType::kF32;
  bool aligned = false;

  static TargetRows of(const MutableTensorView& y) {
    return {y.data, y.row_stride, y.dtype, rows_are_aligned(y)};
  }

  __device__ void store(int64_t t, int64_t n, int64_t count, const float (&values)[kOctet]) const {
    switch (dtype) {
      case DType::kBf16:
        return store_as<CudaBf16>(t * stride + n, count, values);
      case DType::kF16:
        return store_as<CudaF16>(t * stride + n, count, values);
      default:
        return store_as<float>(t * stride + n, count, values);
    }
  }

  __device__ void store_one(int64_t t, int64_t n, float value) const {
    const float values[kOctet] = {value};
    store(t, n, 1, values);
  }

 private:
  template <typename Scalar>
  __device__ void store_as(int64_t index, int64_t count, const float (&values)[kOctet]) const {
    Scalar* to = static_cast<Scalar*>(data) + index;
    if (aligned && count >= kOctet) {
      store_octet(values, to);
    } else {
      store_elements(values, count, to);
    }
  }
};

}  // namespace heddle::ops
