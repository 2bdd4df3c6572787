// SPDX-License-Identifier: Apache-2.0
// Stores and loads rows of snapshots on CUDA with the same bits as snapshot_rows.h: f32, bf16, or
// i8 with a scale for each row: scale = max |x| / 127, code = round(x / scale). All lanes of a warp
// that has a row call row_scale() and store_row_scale(); each thread calls scale_of() and stores
// single numbers. Bytes: 4, 2 or 1 a number, 4 a scale. Used by the kernels that write states to
// snapshot slots.
#pragma once

#include <cfloat>
#include <cstdint>
#include <type_traits>

#include "ops/cuda/reduce.cuh"
#include "ops/forward_context.h"

namespace heddle::ops {

// The matrices of a layer's snapshots.
struct SnapshotMatrices {
  void* data;
  float* scales;  // [rows]: scales of i8 rows
  int64_t slot_stride, scale_stride;
  int64_t Dk;
  DType dtype;  // format of the numbers: f32, bf16 or i8

  // Index of the first number of a row; `row` is counted over the value heads of the slot.
  [[nodiscard]] __device__ int64_t number_of(int64_t slot, int64_t row) const {
    return slot * slot_stride + row * Dk;
  }
};

// Factors of an i8 row: one for numbers when they are stored, one for stored numbers when they are
// loaded.
struct RowScale {
  float inverse = 1;
  float scale = 1;
};

// The scale of a row whose largest magnitude is `largest`; `finite` says whether all its numbers
// are.
__device__ inline RowScale scale_of(float largest, bool finite) {
  if (!finite) return {.inverse = 0, .scale = __int_as_float(0x7fc00000)};
  const float scale = __fdiv_rn(largest, 127.0f);
  if (scale < FLT_MIN) return {.inverse = 0, .scale = 0};
  return {.inverse = __fdiv_rn(127.0f, largest), .scale = scale};
}

// `largest` and `finite` describe a lane's numbers; every lane gets the scale of the whole row.
__device__ inline RowScale row_scale(float largest, bool finite) {
  return scale_of(warp_max(largest), __all_sync(0xffffffffu, finite) != 0);
}

// As to_bf16() of core/dtype.h, NaN included.
__device__ inline uint16_t snapshot_bf16(float value) {
  const auto bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// Converts a number to the format of snapshot slots: f32, bf16 or i8.
template <typename Stored>
__device__ inline Stored stored_number(float value, const RowScale& row) {
  if constexpr (std::is_same_v<Stored, float>) {
    return value;
  } else if constexpr (std::is_same_v<Stored, uint16_t>) {
    return snapshot_bf16(value);
  } else {
    // In a row that is stored as NaN every code is 1; its scale is NaN.
    const int code = row.scale != row.scale ? 1 : __float2int_rn(__fmul_rn(value, row.inverse));
    return static_cast<int8_t>(min(code, 127));
  }
}

// Calls body(Stored()) with the stored_number() type of the slots' dtype.
template <typename Body>
__device__ inline void with_stored(DType dtype, const Body& body) {
  if (dtype == DType::kF32) {
    body(float());
  } else if (dtype == DType::kBf16) {
    body(uint16_t());
  } else {
    body(int8_t());
  }
}

__device__ inline void store_snapshot_number(const SnapshotMatrices& to, int64_t number,
                                             float value, const RowScale& row) {
  with_stored(to.dtype, [&](auto type) {
    using Stored = decltype(type);
    static_cast<Stored*>(to.data)[number] = stored_number<Stored>(value, row);
  });
}

// Stores the scale of a row; one lane writes it.
__device__ inline void store_row_scale(const SnapshotMatrices& to, int64_t slot, int64_t row,
                                       const RowScale& scale) {
  if (to.dtype != DType::kI8 || threadIdx.x % kWarp != 0) return;
  to.scales[slot * to.scale_stride + row] = scale.scale;
}

// A warp stores a row, counted over the value heads of the slot. A lane has columns lane + 32 * i.
template <int kColumns>
__device__ void store_snapshot_row(const SnapshotMatrices& to, int64_t slot, int64_t row,
                                   const float (&s)[kColumns]) {
  const int lane = threadIdx.x % kWarp;
  RowScale scale;
  if (to.dtype == DType::kI8) {
    float largest = 0;
    bool finite = true;
#pragma unroll
    for (int i = 0; i < kColumns; ++i) {
      largest = fmaxf(largest, fabsf(s[i]));
      finite = finite && isfinite(s[i]);
    }
    scale = row_scale(largest, finite);
  }
  const int64_t number = to.number_of(slot, row);
#pragma unroll
  for (int i = 0; i < kColumns; ++i) {
    const int c = lane + i * kWarp;
    if (c < to.Dk) store_snapshot_number(to, number + c, s[i], scale);
  }
  store_row_scale(to, slot, row, scale);
}

__device__ inline float load_snapshot_number(const SnapshotMatrices& from, int64_t number,
                                             float scale) {
  if (from.dtype == DType::kF32) return static_cast<const float*>(from.data)[number];
  if (from.dtype == DType::kBf16) {
    return __uint_as_float(static_cast<uint32_t>(static_cast<const uint16_t*>(from.data)[number])
                           << 16);
  }
  // Returns the same NaN as the CPU; a multiplication would change it.
  if (scale != scale) return scale;
  return __fmul_rn(static_cast<float>(static_cast<const int8_t*>(from.data)[number]), scale);
}

}  // namespace heddle::ops
