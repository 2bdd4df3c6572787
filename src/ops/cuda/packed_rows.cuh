// SPDX-License-Identifier: Apache-2.0
// Rows of a quantised weight (quant/packed_rows.h) on the device: kernels read eight neighbouring
// numbers at a time, exactly those that quant::dequantise_row() computes; and row_products() of
// such rows. The difference of code and zero point is exact; its product with the scale is rounded
// once, to fp32.
//
// Eight codes are one load of 8 bytes, for any K, because rows of codes are padded to whole lines.
// Their scale is read again for each octet, from the first-level cache. Some 3 instructions a
// number: one permutation and one subtraction turn an integer code into a float; one conversion
// turns two E4M3 or E2M1 codes into two halves, and one more each into floats; and one
// multiplication scales it.
#pragma once

#include <bit>
#include <cstdint>

#include "ops/cuda/row_products.cuh"
#include "quant/packed_rows.h"

namespace heddle::ops {

// Kernel arguments for one part of a weight.
struct PackedSource {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  const uint8_t* zeros = nullptr;  // null: every zero point is constant_zero
  // Group of each column; null: groups are runs of neighbouring columns.
  const int32_t* group_index = nullptr;
  int64_t code_bytes = 0;   // bytes of a row's codes
  int64_t scale_bytes = 0;  // bytes from one row of scales to the next
  int32_t num_groups = 0;
  int32_t group_size = 1;
  int32_t group_shift = -1;  // log2 of group_size; negative: group_size is not a power of two
  int32_t rows_per_scale = 1;
  int32_t first_scale_rows = 0;
  float constant_zero = 0;
  quant::Code code = quant::Code::kU8;
  quant::ScaleType scale_type = quant::ScaleType::kF32;
  bool octets_share = false;  // true: the eight columns of an octet always share a group

  static PackedSource of(const quant::PackedRows& rows) {
    const quant::RowFormat& format = rows.format;
    HEDDLE_CHECK(rows.zeros == nullptr || rows.rows_per_scale == 1);
    const bool consecutive = format.group_index == nullptr;
    const auto group_size = static_cast<uint32_t>(format.group_size);
    return {.codes = reinterpret_cast<const uint8_t*>(rows.codes),
            .scales = reinterpret_cast<const uint8_t*>(rows.scales),
            .zeros = rows.zeros,
            .group_index = rows.gpu_group_index,
            .code_bytes = format.code_bytes(),
            .scale_bytes = format.scale_bytes(),
            .num_groups = static_cast<int32_t>(format.num_groups()),
            .group_size = static_cast<int32_t>(group_size),
            .group_shift = std::has_single_bit(group_size) ? std::countr_zero(group_size) : -1,
            .rows_per_scale = static_cast<int32_t>(rows.rows_per_scale),
            .first_scale_rows = static_cast<int32_t>(rows.first_scale_rows),
            .constant_zero = static_cast<float>(format.constant_zero),
            .code = format.code,
            .scale_type = format.scale,
            .octets_share =
                consecutive && (format.num_groups() == 1 || format.group_size % kOctet == 0)};
  }

  // The group of column k, for weights whose groups are runs of neighbouring columns.
  [[nodiscard]] __device__ int32_t group_of(int32_t k) const {
    return num_groups == 1 ? 0 : group_shift >= 0 ? k >> group_shift : k / group_size;
  }

  // The scale of a group in a row of scales.
  [[nodiscard]] __device__ float scale_of(int32_t scale_row, int32_t group) const {
    const uint8_t* row = scales + scale_row * scale_bytes;
    switch (scale_type) {
      case quant::ScaleType::kF32:
        return reinterpret_cast<const float*>(row)[group];
      case quant::ScaleType::kE8M0:
        return scale_of(scale_type, row[group]);
      case quant::ScaleType::kE4M3Times:
        return __fmul_rn(e4m3(row[quant::kFactorBytes + group]), factor_of(row));
      case quant::ScaleType::kE4M3Over:
        return __fdiv_rn(e4m3(row[quant::kFactorBytes + group]), factor_of(row));
      default:
        return scale_of(scale_type, reinterpret_cast<const uint16_t*>(row)[group]);
    }
  }

  [[nodiscard]] static __device__ float factor_of(const uint8_t* row) {
    return *reinterpret_cast<const float*>(row);
  }

  [[nodiscard]] static __device__ float e4m3(uint8_t code) {
    return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3)));
  }

  // The scale that the low bits of `stored` represent; not for formats whose scales have a further
  // factor.
  [[nodiscard]] static __device__ float scale_of(quant::ScaleType type, uint32_t stored) {
    switch (type) {
      case quant::ScaleType::kF32:
        return __uint_as_float(stored);
      case quant::ScaleType::kBf16:
        return __uint_as_float(stored << 16);
      case quant::ScaleType::kF16:
        return __half2float(__ushort_as_half(static_cast<uint16_t>(stored)));
      default:  // E8M0: a power of two, 255 is NaN
        return __uint_as_float(stored == 255 ? 0x7fc00000u
                               : stored == 0 ? 0x00400000u
                                             : stored << 23);
    }
  }
};

// Converts the codes of four columns, a byte each, to numbers minus `zero`, which is 0 for float
// codes.
template <quant::Code kCode>
__device__ inline void widen_codes(uint32_t bytes, float zero, float* values) {
  if constexpr (kCode == quant::Code::kU4 || kCode == quant::Code::kU8) {
    // Bits of 2^23, a float whose last mantissa bit is worth 1.
    constexpr uint32_t kBase = 0x4b000000;
    const float base = __uint_as_float(kBase) + zero;
    values[0] = __uint_as_float(__byte_perm(bytes, kBase, 0x7440)) - base;
    values[1] = __uint_as_float(__byte_perm(bytes, kBase, 0x7441)) - base;
    values[2] = __uint_as_float(__byte_perm(bytes, kBase, 0x7442)) - base;
    values[3] = __uint_as_float(__byte_perm(bytes, kBase, 0x7443)) - base;
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      __half2 pair;
      // One sign bit and two exponent bits with bias 1.
      if constexpr (kCode == quant::Code::kE2M1) {
        const uint32_t spread = __byte_perm(bytes, 0, i == 0 ? 0x1404 : 0x3424);
        const uint32_t bits = ((spread << 1) & 0x0e000e00u) | ((spread << 4) & 0x80008000u);
        memcpy(&pair, &bits, sizeof(pair));
        pair = __hmul2(pair, __float2half2_rn(16384.0f));  // 2^14: fp16 has an exponent bias of 15
      } else {
        const auto two = static_cast<__nv_fp8x2_storage_t>(bytes >> (16 * i));
        pair = __half2(__nv_cvt_fp8x2_to_halfraw2(two, __NV_E4M3));
      }
      const float2 floats = __half22float2(pair);
      values[2 * i] = floats.x;
      values[2 * i + 1] = floats.y;
    }
  }
}

// One row of a weight. Scales and zero points are addressed by the index of their row, which takes
// half as many registers as pointers. Weights with zero points must not share scales among rows.
template <bool kFourBits>
struct PackedRow {
  const PackedSource* source;
  const uint8_t* codes;
  int32_t scale_row;

  PackedRow() = default;

  __device__ PackedRow(const PackedSource& of, int64_t row)
      : source(&of), codes(of.codes + row * of.code_bytes), scale_row(static_cast<int32_t>(row)) {
    if (of.rows_per_scale > 1) scale_row = (of.first_scale_rows + scale_row) / of.rows_per_scale;
  }

  // The codes of columns k .. k + 7, a byte each. `k`: a multiple of 8.
  [[nodiscard]] __device__ uint2 octet(int32_t k) const {
    if constexpr (kFourBits) {
      const uint2 both = *reinterpret_cast<const uint2*>(codes + k / 128 * 64 + k % 64);
      const int shift = k / 64 % 2 * 4;
      return make_uint2((both.x >> shift) & 0x0f0f0f0fu, (both.y >> shift) & 0x0f0f0f0fu);
    } else {
      return *reinterpret_cast<const uint2*>(codes + k);
    }
  }

  // The eight numbers whose codes begin at column k, if these columns share a group.
  __device__ void widen(const uint2& octet, int32_t k, float (&values)[kOctet]) const {
    const int32_t group = source->group_of(k);
    const float scale = source->scale_of(scale_row, group);
    const float zero = zero_of(group);
    widen_codes(octet.x, zero, values);
    widen_codes(octet.y, zero, values + 4);
#pragma unroll
    for (int i = 0; i < kOctet; ++i) values[i] = __fmul_rn(values[i], scale);
  }

  // As widen(), for columns in any groups; the row has `count` more columns.
  __device__ void widen_each(const uint2& octet, int32_t k, int32_t count,
                             float (&values)[kOctet]) const {
    widen_codes(octet.x, 0, values);
    widen_codes(octet.y, 0, values + 4);
#pragma unroll 1
    for (int i = 0; i < min(count, kOctet); ++i) {
      const int32_t group =
          source->group_index != nullptr ? source->group_index[k + i] : source->group_of(k + i);
      const float zero = zero_of(group);
      const float scale = source->scale_of(scale_row, group);
#pragma unroll
      for (int j = 0; j < kOctet; ++j) {
        if (j == i) values[j] = __fmul_rn(values[j] - zero, scale);
      }
    }
  }

 private:
  [[nodiscard]] __device__ float zero_of(int32_t group) const {
    if (source->zeros == nullptr) return source->constant_zero;
    return static_cast<float>(source->zeros[int64_t{scale_row} * source->num_groups + group]);
  }

  __device__ void widen_codes(uint32_t bytes, float zero, float* values) const {
    constexpr auto kFloats = kFourBits ? quant::Code::kE2M1 : quant::Code::kE4M3;
    if (source->code == quant::Code::kU4 || source->code == quant::Code::kU8) {
      ops::widen_codes<quant::Code::kU8>(bytes, zero, values);
    } else {
      ops::widen_codes<kFloats>(bytes, zero, values);
    }
  }
};

// A weight [N, K] or [E, N, K] as the kernels of row products use it: returns row n of an expert,
// or of the only weight.
template <bool kFourBits>
struct PackedWeightRows {
  PackedSource source;
  int64_t rows_of_expert = 0;

  [[nodiscard]] __device__ PackedRow<kFourBits> row(int64_t n, int64_t expert = 0) const {
    return {source, expert * rows_of_expert + n};
  }
};

// Calls body(PackedWeightRows) with the type for the width of the codes.
template <typename Body>
auto with_packed_rows(const quant::PackedRows& rows, int64_t rows_of_expert, const Body& body) {
  const PackedSource source = PackedSource::of(rows);
  if (rows.format.four_bits()) return body(PackedWeightRows<true>{source, rows_of_expert});
  return body(PackedWeightRows<false>{source, rows_of_expert});
}

// A row of x, with a dtype known only at launch.
struct AnyRow {
  const void* data;
  DType dtype;

  // Loads columns k to k + 7; the row has `count` more columns, and the others are set to 0.
  __device__ void load(int32_t k, int32_t count, bool aligned, float (&values)[kOctet]) const {
    switch (dtype) {
      case DType::kBf16:
        return load_as<CudaBf16>(k, count, aligned, values);
      case DType::kF16:
        return load_as<CudaF16>(k, count, aligned, values);
      default:
        return load_as<float>(k, count, aligned, values);
    }
  }

 private:
  template <typename Scalar>
  __device__ void load_as(int32_t k, int32_t count, bool aligned, float (&values)[kOctet]) const {
    const Scalar* from = static_cast<const Scalar*>(data) + k;
    if (aligned && count >= kOctet) {
      load_octet(from, values);
    } else {
      load_elements(from, count, values);
    }
  }
};

// The rows of x, with a dtype known only at launch.
struct AnyRows {
  const void* data = nullptr;
  int64_t stride = 0;
  DType dtype = DType::kF32;

  [[nodiscard]] __device__ AnyRow row(int64_t t) const {
    const int64_t size = dtype == DType::kF32 ? 4 : 2;
    return {static_cast<const std::byte*>(data) + t * stride * size, dtype};
  }
};

// Computes the same sums in the same order as for plain rows. An octet of codes is dequantised when
// it is multiplied. With one row of x, the codes of several octets are loaded together. Rows of
// codes are padded with zeros, as x is.
template <bool kFourBits, int kRows, int kColumns>
__device__ inline void row_products(const AnyRow (&x)[kRows],
                                    const PackedRow<kFourBits> (&weight)[kColumns], bool aligned,
                                    int64_t K, float (&sums)[kRows][kColumns]) {
  constexpr int kStep = kOctet * kWarp;
  constexpr int kAtOnce = kRows == 1 ? 8 / kColumns : 1;
  const auto width = static_cast<int32_t>(K);
  const bool share = weight[0].source->octets_share;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[r][c] = 0.0f;
  }
#pragma unroll 1
  for (int32_t first = static_cast<int32_t>(threadIdx.x % kWarp) * kOctet; first < width;
       first += kAtOnce * kStep) {
    uint2 codes[kAtOnce][kColumns];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (first + j * kStep >= width) break;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) codes[j][c] = weight[c].octet(first + j * kStep);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      const int32_t k = first + j * kStep;
      if (k >= width) break;
      float from_x[kRows][kOctet];
#pragma unroll
      for (int r = 0; r < kRows; ++r) x[r].load(k, width - k, aligned, from_x[r]);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        float w[kOctet];
        if (share) {
          weight[c].widen(codes[j][c], k, w);
        } else {
          weight[c].widen_each(codes[j][c], k, width - k, w);
        }
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
#pragma unroll
          for (int i = 0; i < kOctet; ++i) sums[r][c] = fmaf(from_x[r][i], w[i], sums[r][c]);
        }
      }
    }
  }
  // With plain rows, the zeros after the last column turn a sum of -0 into 0; this does the same.
  const bool ends_here =
      width % kOctet != 0 && width / kOctet % kWarp == static_cast<int32_t>(threadIdx.x % kWarp);
  const float last = ends_here ? 0.0f : -0.0f;
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int c = 0; c < kColumns; ++c) sums[r][c] = warp_sum(sums[r][c] + last);
  }
}

}  // namespace heddle::ops
