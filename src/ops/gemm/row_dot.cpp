// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/row_dot.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "ops/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm/row_dot.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/load-inl.h"
#include "quant/dequantise.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = heddle::ops::simd::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;

// Rows and columns of a tile. An element has two vectors of sums: with 4 columns they occupy 24 of
// AVX-512's 32 registers, with 2 columns 12 of AVX2's 16. The other registers hold three rows of x
// and a weight.
constexpr int kTileRows = HWY_TARGET == HWY_SCALAR ? 1 : 3;
constexpr int kTileColumns = HWY_TARGET == HWY_AVX3 ? 4 : HWY_TARGET == HWY_AVX2 ? 2 : 1;

// Bytes of x rows that stay in the second-level cache while all columns of a block are computed.
constexpr int64_t kRowBytesInCache = 256 * 1024;

template <int kRows, int kColumns, typename Weight>
HWY_INLINE void dot_step(const float* const (&x)[kRows], const Weight* const (&w)[kColumns],
                         int64_t k, hn::Vec<hn::ScalableTag<float>> (&sums)[2][kRows][kColumns]) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HEDDLE_UNROLL
  for (int half = 0; half < 2; ++half) {
    hn::Vec<decltype(d)> row[kRows];
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) row[r] = hn::LoadU(d, x[r] + k + half * lanes);
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const auto weights = simd::LoadFloats(d, w[c] + k + half * lanes);
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r)
        sums[half][r][c] = hn::MulAdd(row[r], weights, sums[half][r][c]);
    }
  }
}

// Reduces four vectors together: lane i of the result is the sum of v[i].
HWY_INLINE hn::Vec<hn::CappedTag<float, 4>> fold_lanes(const hn::Vec<FloatTag> (&v)[4]) {
#if HWY_TARGET == HWY_SCALAR
  return v[0];
#else
  const FloatTag d;
  const hn::Repartition<double, FloatTag> d64;
  // Blocks of four lanes each become [sum v0, sum v1, sum v2, sum v3], then the blocks are added.
  const auto low = hn::Add(hn::InterleaveLower(d, v[0], v[1]), hn::InterleaveUpper(d, v[0], v[1]));
  const auto high = hn::Add(hn::InterleaveLower(d, v[2], v[3]), hn::InterleaveUpper(d, v[2], v[3]));
  const auto low64 = hn::BitCast(d64, low);
  const auto high64 = hn::BitCast(d64, high);
  const auto blocks = hn::Add(hn::BitCast(d, hn::InterleaveLower(d64, low64, high64)),
                              hn::BitCast(d, hn::InterleaveUpper(d64, low64, high64)));
#if HWY_MAX_BYTES == 16
  return blocks;
#else
  const hn::Half<FloatTag> half;
  const auto halves = hn::Add(hn::LowerHalf(half, blocks), hn::UpperHalf(half, blocks));
#if HWY_TARGET == HWY_AVX3
  const hn::Half<hn::Half<FloatTag>> quarter;
  return hn::Add(hn::LowerHalf(quarter, halves), hn::UpperHalf(quarter, halves));
#else
  return halves;
#endif
#endif
#endif
}

// Adds the last p.K - k columns to the sums of an element, padded with zeros to a whole step.
template <int kRows, int kColumns, typename Weight>
HWY_INLINE void dot_tail(const float* const (&x)[kRows], const Weight* const (&w)[kColumns],
                         int64_t k, int64_t K,
                         hn::Vec<hn::ScalableTag<float>> (&sums)[2][kRows][kColumns]) {
  constexpr int64_t kMaxStep = 2 * hn::MaxLanes(hn::ScalableTag<float>());
  HWY_ALIGN float x_tail[kRows][kMaxStep] = {};
  HWY_ALIGN Weight w_tail[kColumns][kMaxStep] = {};
  const auto count = static_cast<size_t>(K - k);
  const float* x_rows[kRows];
  const Weight* w_rows[kColumns];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    std::memcpy(x_tail[r], x[r] + k, count * sizeof(float));
    x_rows[r] = x_tail[r];
  }
  HEDDLE_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    ops::simd::copy_unaligned(w_tail[c], w[c] + k, count * sizeof(Weight));
    w_rows[c] = w_tail[c];
  }
  dot_step<kRows, kColumns, Weight>(x_rows, w_rows, 0, sums);
}

// Computes kColumns elements of one row of y from the sums in lanes. The order of additions does
// not depend on kColumns.
template <int kColumns>
HWY_INLINE void store_sums(const Product& p, int64_t row, int64_t column,
                           const hn::Vec<FloatTag> (&sums)[kColumns]) {
  hn::Vec<FloatTag> four[4];
  HEDDLE_UNROLL
  for (int c = 0; c < 4; ++c) four[c] = c < kColumns ? sums[c % kColumns] : hn::Zero(FloatTag());
  HWY_ALIGN float folded[4];
  hn::Store(fold_lanes(four), hn::CappedTag<float, 4>(), folded);
  float* const y = p.y + row * p.y_stride + column;
  HEDDLE_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    y[c] = p.bias == nullptr ? folded[c] : folded[c] + p.bias[column + c];
  }
}

// One row of x times kColumns rows of the weight. Weight rows are read one after the other, in
// memory order: reading several at a time would cost a quarter of the bandwidth. With more rows of
// x, arithmetic is the limit, and tiles that share loads are faster.
template <int kColumns, typename Weight>
HWY_NOINLINE void stream_tile(const Product& p, int64_t row, int64_t column) {
  const FloatTag d;
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  const float* const x[1] = {p.x + p.x_row(row) * p.x_stride};
  hn::Vec<FloatTag> totals[kColumns];
  for (int c = 0; c < kColumns; ++c) {
    const Weight* const w[1] = {static_cast<const Weight*>(p.weight) +
                                (column + c) * p.weight_stride};
    hn::Vec<FloatTag> sums[2][1][1] = {{{hn::Zero(d)}}, {{hn::Zero(d)}}};
    int64_t k = 0;
    for (; k + step <= p.K; k += step) {
      const auto ahead = reinterpret_cast<uintptr_t>(w[0] + k) + kStreamAheadBytes;
      for (uintptr_t line = 0; line < static_cast<uintptr_t>(step) * sizeof(Weight); line += 64) {
        simd::PrefetchLine(ahead + line);
      }
      dot_step<1, 1, Weight>(x, w, k, sums);
    }
    if (k < p.K) dot_tail<1, 1, Weight>(x, w, k, p.K, sums);
    totals[c] = hn::Add(sums[0][0][0], sums[1][0][0]);
  }
  store_sums<kColumns>(p, row, column, totals);
}

// Computes tile number `pass` of `num_passes` tiles with the same columns; its first element is
// (row, column). Each of these tiles prefetches a share of the next columns' weights, so that loads
// from memory are spread evenly over the computation.
template <int kRows, int kColumns, typename Weight>
HWY_NOINLINE void dot_tile(const Product& p, int64_t row, int64_t column, int64_t pass,
                           int64_t num_passes) {
  const hn::ScalableTag<float> d;
  constexpr int64_t kMaxStep = 2 * hn::MaxLanes(hn::ScalableTag<float>());
  const int64_t step = 2 * static_cast<int64_t>(hn::Lanes(d));
  const float* x[kRows];
  const Weight* w[kColumns];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) x[r] = p.x + p.x_row(row + r) * p.x_stride;
  HEDDLE_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    w[c] = static_cast<const Weight*>(p.weight) + (column + c) * p.weight_stride;
  }
  hn::Vec<decltype(d)> sums[2][kRows][kColumns];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; ++c) sums[0][r][c] = sums[1][r][c] = hn::Zero(d);
  }

  // The next columns' weights follow these ones.
  constexpr int64_t kLines = kColumns * kMaxStep * static_cast<int64_t>(sizeof(Weight)) / 64;
  const int64_t first_line = kLines * pass / num_passes;
  const int64_t num_lines = kLines * (pass + 1) / num_passes - first_line;
  uintptr_t ahead = reinterpret_cast<uintptr_t>(w[0] + kColumns * p.weight_stride) +
                    static_cast<uintptr_t>(64 * first_line * (p.K / step));
  int64_t k = 0;
  for (; k + step <= p.K; k += step) {
    for (int64_t line = 0; line < num_lines; ++line, ahead += 64) simd::PrefetchLine(ahead);
    dot_step<kRows, kColumns, Weight>(x, w, k, sums);
  }
  if (k < p.K) dot_tail<kRows, kColumns, Weight>(x, w, k, p.K, sums);

  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    hn::Vec<FloatTag> columns[kColumns];
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; ++c) columns[c] = hn::Add(sums[0][r][c], sums[1][r][c]);
    store_sums<kColumns>(p, row + r, column, columns);
  }
}

// All rows [begin, end) of `kColumns` columns. A single row is computed by the streaming kernel,
// several in tiles of kTileRows rows after a smaller first tile.
template <int kColumns, typename Weight>
HWY_INLINE void dot_rows(const Product& p, int64_t begin, int64_t end, int64_t column) {
  if constexpr (kTileRows > 1) {
    if (end - begin == 1) return stream_tile<kColumns, Weight>(p, begin, column);
  }
  const int64_t odd_rows = (end - begin) % kTileRows;
  const int64_t num_passes = (end - begin + kTileRows - 1) / kTileRows;
  if constexpr (kTileRows == 3) {
    if (odd_rows == 1) dot_tile<1, kColumns, Weight>(p, begin, column, 0, num_passes);
    if (odd_rows == 2) dot_tile<2, kColumns, Weight>(p, begin, column, 0, num_passes);
  }
  int64_t pass = odd_rows == 0 ? 0 : 1;
  for (int64_t row = begin + odd_rows; row < end; row += kTileRows, ++pass) {
    dot_tile<kTileRows, kColumns, Weight>(p, row, column, pass, num_passes);
  }
}

template <typename Weight>
void dot_block(const Product& p, const Block& block) {
  const int64_t row_bytes = std::max<int64_t>(p.K, 1) * static_cast<int64_t>(sizeof(float));
  const int64_t rows_at_once = std::max<int64_t>(kRowBytesInCache / row_bytes, 4) / 6 * 6 + 6;
  for (int64_t begin = block.row_begin; begin < block.row_end; begin += rows_at_once) {
    const int64_t end = std::min(begin + rows_at_once, block.row_end);
    int64_t column = block.column_begin;
    for (; column + kTileColumns <= block.column_end; column += kTileColumns) {
      dot_rows<kTileColumns, Weight>(p, begin, end, column);
    }
    for (; column < block.column_end; ++column) dot_rows<1, Weight>(p, begin, end, column);
  }
}

void row_dot_block(const Product& product, const Block& block) {
  switch (product.weight_dtype) {
    case DType::kF32:
      return dot_block<float>(product, block);
    case DType::kBf16:
      return dot_block<Bf16>(product, block);
    case DType::kF16:
      return dot_block<F16>(product, block);
    default:
      HEDDLE_CHECK(false && "the contract admits f32, bf16 and f16 weights only");
  }
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(row_dot_block);

void row_dot(const Product& product, const Block& block) {
  HWY_DYNAMIC_DISPATCH(row_dot_block)(product, block);
}

void packed_row_dot(const Product& product, const Block& block) {
  HEDDLE_CHECK_LE(product.K, quant::kMaxPackedWidth);
  alignas(64) float rows[quant::kMaxPackedWidth];
  // As many columns as fit into half of a second-level cache, if possible whole tiles of row_dot().
  constexpr int64_t kMaxColumns = 16;
  const int64_t stride = (product.K + 15) / 16 * 16;
  const int64_t fit =
      std::clamp<int64_t>(quant::kMaxPackedWidth / std::max<int64_t>(stride, 1), 1, kMaxColumns);
  const int64_t at_once = fit >= 4 ? fit / 4 * 4 : fit;
  for (int64_t column = block.column_begin; column < block.column_end; column += at_once) {
    const int64_t count = std::min(at_once, block.column_end - column);
    for (int64_t c = 0; c < count; ++c) {
      quant::dequantise_row(*product.packed, product.packed_row + column + c, 0, product.K,
                            rows + c * stride);
    }
    Product plain = product;
    plain.weight = rows;
    plain.weight_stride = stride;
    plain.weight_dtype = DType::kF32;
    plain.packed = nullptr;
    plain.y += column;
    if (plain.bias != nullptr) plain.bias += column;
    plain.N = count;
    row_dot(plain, {.row_begin = block.row_begin,
                    .row_end = block.row_end,
                    .column_begin = 0,
                    .column_end = count});
  }
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
