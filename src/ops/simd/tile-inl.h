// SPDX-License-Identifier: Apache-2.0
// Register tiles for small fp32 matrix products, in Highway's per-target style:
//
//   DotRows          scores[r][j] = a[r] . b[j]           both along contiguous memory
//   AccumulateRows   c[r] = c[r] * scale[r] + sum over j of a[r][j] * b[j]
//
// Every result is one fixed sequence of operations: DotRows adds lane by lane over ascending
// chunks, then the lanes in one tree; AccumulateRows adds in ascending order of j. The number of
// rows that share a tile does not matter: a row's bits do not depend on the other rows or on their
// number.
#if defined(HEDDLE_OPS_SIMD_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_SIMD_TILE_INL_H_
#undef HEDDLE_OPS_SIMD_TILE_INL_H_
#else
#define HEDDLE_OPS_SIMD_TILE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "ops/simd/load-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::tile::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

inline constexpr size_t kLanes = hn::MaxLanes(D());

// Number of rows (tokens) whose dot products are reduced together into one vector of results.
inline constexpr size_t kFoldRows = kLanes < 4 ? 4 : kLanes;

// On every instruction set, DotRows writes results for whole groups of this many rows.
inline constexpr size_t kDotGroup = 16;

// Most rows of `a` in a tile: 4 x 4 accumulators fit into 32 registers, 2 x 4 into 16.
inline constexpr int kTileRows = kLanes >= 16 ? 4 : 2;

// Sums the lanes of four vectors within each 128-bit block: lane i of block b of the result is the
// sum of block b of the i-th vector, added as (lane 0 + lane 2) + (lane 1 + lane 3).
HWY_INLINE V FoldLanes([[maybe_unused]] D d, V x0, V x1, V x2, V x3) {
#if HWY_TARGET == HWY_SCALAR
  (void)x1, (void)x2, (void)x3;
  return x0;  // never called: with one lane there is nothing to sum
#else
  const V x02 = hn::Add(hn::InterleaveLower(d, x0, x2), hn::InterleaveUpper(d, x0, x2));
  const V x13 = hn::Add(hn::InterleaveLower(d, x1, x3), hn::InterleaveUpper(d, x1, x3));
  return hn::Add(hn::InterleaveLower(d, x02, x13), hn::InterleaveUpper(d, x02, x13));
#endif
}

// Turns kFoldRows / 4 results of FoldLanes at `partial` into the sums of kFoldRows rows, in order.
HWY_INLINE V FoldBlocks([[maybe_unused]] D d, const float* HWY_RESTRICT partial) {
#if HWY_TARGET == HWY_SCALAR
  return hn::Load(d, partial);
#else
  if constexpr (kLanes == 16) {
    const V v0 = hn::Load(d, partial);
    const V v1 = hn::Load(d, partial + kLanes);
    const V v2 = hn::Load(d, partial + 2 * kLanes);
    const V v3 = hn::Load(d, partial + 3 * kLanes);
    const V even = hn::Add(hn::ConcatLowerLower(d, v2, v0), hn::ConcatUpperUpper(d, v2, v0));
    const V odd = hn::Add(hn::ConcatLowerLower(d, v3, v1), hn::ConcatUpperUpper(d, v3, v1));
    return hn::Add(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(odd), even),
                   hn::OddEvenBlocks(odd, hn::SwapAdjacentBlocks(even)));
  } else if constexpr (kLanes == 8) {
    const V v0 = hn::Load(d, partial);
    const V v1 = hn::Load(d, partial + kLanes);
    return hn::Add(hn::ConcatLowerLower(d, v1, v0), hn::ConcatUpperUpper(d, v1, v0));
  } else {
    return hn::Load(d, partial);
  }
#endif
}

// Stores in partial[r] the partial sums of a[r] . b[0..3] that FoldBlocks reads; rows of `partial`
// are kDotGroup * 4 floats apart.
inline constexpr size_t kPartialStride = kDotGroup * 4;

template <int kRows, class T>
HWY_INLINE void DotTile(D d, const float* HWY_RESTRICT a, size_t a_stride, const T* const* b,
                        size_t width, float* HWY_RESTRICT partial) {
  const T* const b0 = b[0];
  const T* const b1 = b[1];
  const T* const b2 = b[2];
  const T* const b3 = b[3];
  V acc[kRows][4];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    HEDDLE_UNROLL
    for (int j = 0; j < 4; ++j) acc[r][j] = hn::Zero(d);
  }
  for (size_t c = 0; c < width; c += kLanes) {
    const V x0 = math::LoadFloats(d, b0 + c);
    const V x1 = math::LoadFloats(d, b1 + c);
    const V x2 = math::LoadFloats(d, b2 + c);
    const V x3 = math::LoadFloats(d, b3 + c);
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V x = hn::LoadU(d, a + static_cast<size_t>(r) * a_stride + c);
      acc[r][0] = hn::MulAdd(x, x0, acc[r][0]);
      acc[r][1] = hn::MulAdd(x, x1, acc[r][1]);
      acc[r][2] = hn::MulAdd(x, x2, acc[r][2]);
      acc[r][3] = hn::MulAdd(x, x3, acc[r][3]);
    }
  }
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    float* out = partial + static_cast<size_t>(r) * kPartialStride;
#if HWY_TARGET == HWY_SCALAR
    HEDDLE_UNROLL
    for (int j = 0; j < 4; ++j) hn::Store(acc[r][j], d, out + j);
#else
    hn::Store(FoldLanes(d, acc[r][0], acc[r][1], acc[r][2], acc[r][3]), d, out);
#endif
  }
}

// Computes DotRows for one group of kDotGroup rows of b and kRows rows of a.
template <int kRows, class T>
HWY_INLINE void DotGroup(D d, const float* HWY_RESTRICT a, size_t a_stride, const T* const* b,
                         size_t width, float* HWY_RESTRICT scores, size_t scores_stride) {
  HWY_ALIGN float partial[kRows * kPartialStride];
  // floats that one tile writes to each row of `partial`
  constexpr size_t kUnit = kLanes < 4 ? 4 : kLanes;
  for (size_t j = 0; j < kDotGroup; j += 4) {
    DotTile<kRows>(d, a, a_stride, b + j, width, partial + j / 4 * kUnit);
  }
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const float* in = partial + static_cast<size_t>(r) * kPartialStride;
    float* out = scores + static_cast<size_t>(r) * scores_stride;
    if constexpr (kLanes < 4) {
      for (size_t j = 0; j < kDotGroup; j += kLanes) hn::StoreU(hn::Load(d, in + j), d, out + j);
    } else {
      for (size_t j = 0; j < kDotGroup; j += kFoldRows) {
        hn::StoreU(FoldBlocks(d, in + j / 4 * kUnit), d, out + j);
      }
    }
  }
}

// scores[r][j] = a[r] . b[j] for j < num_b rounded up to kDotGroup; b must have that many readable
// pointers. `width` is a multiple of kLanes.
template <class T>
HWY_NOINLINE void DotRows(const float* HWY_RESTRICT a, size_t a_stride, size_t num_a,
                          const T* const* b, size_t num_b, size_t width, float* HWY_RESTRICT scores,
                          size_t scores_stride) {
  const D d;
  // A group of b stays in the first-level cache while it is multiplied with all rows of a.
  for (size_t j = 0; j < num_b; j += kDotGroup) {
    size_t r = 0;
    for (; r + kTileRows <= num_a; r += kTileRows) {
      DotGroup<kTileRows>(d, a + r * a_stride, a_stride, b + j, width,
                          scores + r * scores_stride + j, scores_stride);
    }
    const float* rest = a + r * a_stride;
    float* rest_scores = scores + r * scores_stride + j;
    switch (num_a - r) {
      case 1:
        DotGroup<1>(d, rest, a_stride, b + j, width, rest_scores, scores_stride);
        break;
      case 2:
        DotGroup<2>(d, rest, a_stride, b + j, width, rest_scores, scores_stride);
        break;
      case 3:
        DotGroup<3>(d, rest, a_stride, b + j, width, rest_scores, scores_stride);
        break;
      default:
        break;
    }
  }
}

// Two ways to find rows of b: at a fixed distance, or by pointers.
struct StridedRows {
  const float* base;
  size_t stride;

  HWY_INLINE const float* operator[](size_t j) const { return base + j * stride; }

  [[nodiscard]] StridedRows from(size_t j) const { return {base + j * stride, stride}; }
};

template <class T>
struct PointerRows {
  const T* const* rows;
  size_t column;

  HWY_INLINE const T* operator[](size_t j) const { return rows[j] + column; }

  [[nodiscard]] PointerRows from(size_t j) const { return {rows + j, column}; }
};

// A matrix of coefficients: element (r, j) is data[r * row_stride + j * column_stride].
struct Coefficients {
  const float* data;
  size_t row_stride;
  size_t column_stride;

  [[nodiscard]] Coefficients from(size_t r, size_t j) const {
    return {data + r * row_stride + j * column_stride, row_stride, column_stride};
  }
};

enum class Start { kZero, kValue, kScaled };  // initial value of c: 0, c itself, or c * scale[r]

template <int kRows, int kVectors, Start kStart, class Rows>
HWY_INLINE void AccumulateTile(D d, Coefficients a, const Rows& b, size_t column, size_t count,
                               const float* HWY_RESTRICT scale, float* HWY_RESTRICT c,
                               size_t c_stride) {
  V acc[kRows][kVectors];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    const float* in = c + static_cast<size_t>(r) * c_stride + column;
    HEDDLE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      if constexpr (kStart == Start::kZero) {
        acc[r][v] = hn::Zero(d);
      } else if constexpr (kStart == Start::kValue) {
        acc[r][v] = hn::LoadU(d, in + static_cast<size_t>(v) * kLanes);
      } else {
        acc[r][v] =
            hn::Mul(hn::LoadU(d, in + static_cast<size_t>(v) * kLanes), hn::Set(d, scale[r]));
      }
    }
  }
  for (size_t j = 0; j < count; ++j) {
    const auto* row = b[j] + column;
    V x[kVectors];
    HEDDLE_UNROLL
    for (int v = 0; v < kVectors; ++v)
      x[v] = math::LoadFloats(d, row + static_cast<size_t>(v) * kLanes);
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const V factor =
          hn::Set(d, a.data[static_cast<size_t>(r) * a.row_stride + j * a.column_stride]);
      HEDDLE_UNROLL
      for (int v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(factor, x[v], acc[r][v]);
    }
  }
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    float* out = c + static_cast<size_t>(r) * c_stride + column;
    HEDDLE_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(acc[r][v], d, out + static_cast<size_t>(v) * kLanes);
    }
  }
}

// Computes c[r][column] for kRows rows and `width` columns (a multiple of kLanes).
template <int kRows, Start kStart, class Rows>
HWY_INLINE void AccumulateRows(Coefficients a, const Rows& b, size_t width, size_t count,
                               const float* HWY_RESTRICT scale, float* HWY_RESTRICT c,
                               size_t c_stride) {
  const D d;
  // As many accumulators as the registers allow: at most 16 of 32, or 8 of 16.
  constexpr int kVectors = kLanes >= 16 ? (kRows <= 2 ? 8 : 4)
                                        : (kRows == 1   ? 8
                                           : kRows == 2 ? 4
                                                        : 2);
  size_t column = 0;
  for (; column + kVectors * kLanes <= width; column += kVectors * kLanes) {
    AccumulateTile<kRows, kVectors, kStart>(d, a, b, column, count, scale, c, c_stride);
  }
  if constexpr (kVectors >= 8) {
    for (; column + 4 * kLanes <= width; column += 4 * kLanes) {
      AccumulateTile<kRows, 4, kStart>(d, a, b, column, count, scale, c, c_stride);
    }
  }
  for (; column < width; column += kLanes) {
    AccumulateTile<kRows, 1, kStart>(d, a, b, column, count, scale, c, c_stride);
  }
}

// As the function above, for 1 to 4 rows, a number known only at run time.
template <Start kStart, class Rows>
HWY_INLINE void AccumulateUpTo4(size_t num_rows, Coefficients a, const Rows& b, size_t width,
                                size_t count, const float* HWY_RESTRICT scale,
                                float* HWY_RESTRICT c, size_t c_stride) {
  switch (num_rows) {
    case 1:
      AccumulateRows<1, kStart>(a, b, width, count, scale, c, c_stride);
      break;
    case 2:
      AccumulateRows<2, kStart>(a, b, width, count, scale, c, c_stride);
      break;
    case 3:
      AccumulateRows<3, kStart>(a, b, width, count, scale, c, c_stride);
      break;
    default:
      AccumulateRows<4, kStart>(a, b, width, count, scale, c, c_stride);
      break;
  }
}

}  // namespace heddle::ops::tile::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_SIMD_TILE_INL_H_
