// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/fp8_product.h"

#include <algorithm>
#include <cstring>

#include "ops/simd/targets.h"
#include "quant/dequantise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm/fp8_product.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/load-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = heddle::ops::simd::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;

constexpr int kTileRows = HWY_TARGET == HWY_SCALAR ? 1 : 3;
constexpr int kTileColumns = HWY_TARGET == HWY_AVX3 ? 4 : HWY_TARGET == HWY_AVX2 ? 2 : 1;
constexpr int64_t kLanes = hn::MaxLanes(FloatTag());
constexpr uintptr_t kPrefetchBytes = 4096;

// Loads E4M3 numbers times 2^-8: their bits are placed at the positions of a half-precision
// number's, whose exponent bias is larger by 8. This holds for subnormal numbers, too.
HWY_INLINE hn::Vec<FloatTag> load_e4m3(const uint8_t* from) {
  const FloatTag d;
  const hn::Rebind<int8_t, FloatTag> d8;
  const hn::Rebind<int16_t, FloatTag> d16;
  const hn::Rebind<hwy::float16_t, FloatTag> df16;
  const auto wide = hn::PromoteTo(d16, hn::LoadU(d8, reinterpret_cast<const int8_t*>(from)));
  const auto half = hn::And(hn::ShiftLeft<7>(wide), hn::Set(d16, static_cast<int16_t>(0xbf80)));
  return hn::PromoteTo(d, hn::BitCast(df16, half));
}

template <int kRows, int kColumns>
HWY_NOINLINE void dot_tile(const Product& p, int64_t row, int64_t column) {
  const FloatTag d;
  const quant::PackedRows& weights = *p.packed;
  const int64_t first_row = p.packed_row + column;
  const int64_t group_size = weights.format.group_size;
  const float* x[kRows];
  const uint8_t* w[kColumns];
  hn::Vec<FloatTag> totals[kRows][kColumns];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) x[r] = p.x + p.x_row(row + r) * p.x_stride;
  HEDDLE_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    w[c] = weights.row_codes(first_row + c);
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) totals[r][c] = hn::Zero(d);
  }
  for (int64_t begin = 0, group = 0; begin < p.K; begin += group_size, ++group) {
    const int64_t end = std::min(begin + group_size, p.K);
    hn::Vec<FloatTag> sums[kRows][kColumns];
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      HEDDLE_UNROLL
      for (int c = 0; c < kColumns; ++c) sums[r][c] = hn::Zero(d);
    }
    for (int64_t k = begin; k < end; k += kLanes) {
      hn::Vec<FloatTag> factors[kRows];
      HWY_ALIGN float tail[kRows][kLanes];
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        if (HWY_LIKELY(k + kLanes <= end)) {
          factors[r] = hn::LoadU(d, x[r] + k);
        } else {  // codes after the end of a row are zeros, but x has nothing there
          std::fill_n(tail[r], kLanes, 0.0f);
          std::copy_n(x[r] + k, end - k, tail[r]);
          factors[r] = hn::Load(d, tail[r]);
        }
      }
      HEDDLE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        if (k % 64 == 0) simd::PrefetchLine(reinterpret_cast<uintptr_t>(w[c] + k) + kPrefetchBytes);
        const auto values = load_e4m3(w[c] + k);
        HEDDLE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          sums[r][c] = hn::MulAdd(factors[r], values, sums[r][c]);
        }
      }
    }
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const auto scale = hn::Set(d, 256.0f * quant::scale_of(weights, first_row + c, group));
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        totals[r][c] = hn::MulAdd(sums[r][c], scale, totals[r][c]);
      }
    }
  }
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const float sum = hn::GetLane(hn::SumOfLanes(d, totals[r][c]));
      p.y[(row + r) * p.y_stride + column + c] = p.bias == nullptr ? sum : sum + p.bias[column + c];
    }
  }
}

template <int kColumns>
void dot_rows(const Product& p, const Block& block, int64_t column) {
  int64_t row = block.row_begin;
  for (; row + kTileRows <= block.row_end; row += kTileRows) {
    dot_tile<kTileRows, kColumns>(p, row, column);
  }
  if constexpr (kTileRows == 3) {
    if (block.row_end - row == 2) return dot_tile<2, kColumns>(p, row, column);
    if (block.row_end - row == 1) return dot_tile<1, kColumns>(p, row, column);
  }
}

void fp8_dot_block(const Product& p, const Block& block) {
  int64_t column = block.column_begin;
  for (; column + kTileColumns <= block.column_end; column += kTileColumns) {
    dot_rows<kTileColumns>(p, block, column);
  }
  for (; column < block.column_end; ++column) dot_rows<1>(p, block, column);
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(fp8_dot_block);

bool fp8_dot_takes(const quant::PackedRows& rows) {
  const quant::RowFormat& format = rows.format;
  return format.code == quant::Code::kE4M3 && format.group_index == nullptr &&
         (format.num_groups() == 1 || format.group_size % 32 == 0);
}

void fp8_dot(const Product& product, const Block& block) {
  HWY_DYNAMIC_DISPATCH(fp8_dot_block)(product, block);
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
