// SPDX-License-Identifier: Apache-2.0
// Functions that both recurrences with one matrix per head share, compiled for each instruction
// set: dot products, and the products of a chunk with the state, which is stored in panels [Dk,
// 64], and with the chunk's own tokens.
#if defined(HEDDLE_OPS_LINEAR_ATTENTION_CHUNK_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_LINEAR_ATTENTION_CHUNK_PRODUCTS_INL_H_
#undef HEDDLE_OPS_LINEAR_ATTENTION_CHUNK_PRODUCTS_INL_H_
#else
#define HEDDLE_OPS_LINEAR_ATTENTION_CHUNK_PRODUCTS_INL_H_
#endif

#include <algorithm>
#include <array>
#include <cstdint>

#include "ops/linear_attention/delta_rule_core.h"
#include "ops/simd/math-inl.h"
#include "ops/simd/tile-inl.h"
#include "ops/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::delta::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace math = heddle::ops::simd::HWY_NAMESPACE;
namespace tile = heddle::ops::tile::HWY_NAMESPACE;

using D = tile::D;
using V = tile::V;

inline constexpr auto kLanes = static_cast<int64_t>(tile::kLanes);

HWY_INLINE float dot(const float* a, const float* b, int64_t padded) {
  const D d;
  V sum = hn::Zero(d);
  for (int64_t c = 0; c < padded; c += kLanes) {
    sum = hn::MulAdd(hn::LoadU(d, a + c), hn::LoadU(d, b + c), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// to[i] = exp(from[i]) for i < count; both arrays must have room for whole vectors.
HWY_INLINE void exp_all(const float* from, int64_t count, float* to) {
  const D d;
  for (int64_t i = 0; i < count; i += kLanes) {
    hn::StoreU(math::Exp(d, hn::LoadU(d, from + i)), d, to + i);
  }
}

inline constexpr int64_t kPanel = kDeltaSlabRows;
inline constexpr auto kPanelWidth = static_cast<size_t>(kPanel);

// to[c, r] = from[r, c] for a square of kWidth; returns false, without writing, if the instruction
// set has no transpose of this width.
template <int64_t kWidth>
HWY_INLINE bool transpose_square(const float* from, int64_t from_stride, float* to,
                                 int64_t to_stride) {
  if constexpr (kWidth == 8 || kWidth == 16) {
    const D d;
    V square[static_cast<size_t>(kWidth)];
    HEDDLE_UNROLL
    for (int64_t i = 0; i < kWidth; ++i) square[i] = hn::LoadU(d, from + i * from_stride);
    math::Transpose(d, square);
    HEDDLE_UNROLL
    for (int64_t i = 0; i < kWidth; ++i) hn::StoreU(square[i], d, to + i * to_stride);
    return true;
  }
  return false;
}

// to[c, r] = from[r, c] for `rows` x `columns`; rows of `to` are `to_stride` apart.
HWY_INLINE void transpose(const float* from, int64_t from_stride, int64_t rows, int64_t columns,
                          float* to, int64_t to_stride) {
  for (int64_t r = 0; r < rows; r += kLanes) {
    for (int64_t c = 0; c < columns; c += kLanes) {
      if (r + kLanes <= rows && c + kLanes <= columns &&
          transpose_square<kLanes>(from + r * from_stride + c, from_stride, to + c * to_stride + r,
                                   to_stride)) {
        continue;
      }
      for (int64_t i = r; i < std::min(r + kLanes, rows); ++i) {
        for (int64_t j = c; j < std::min(c + kLanes, columns); ++j) {
          to[j * to_stride + i] = from[i * from_stride + j];
        }
      }
    }
  }
}

// Values of a chunk that all of its panels read.
struct Chunk {
  int64_t first = 0;  // index of the chunk's first token in the head
  int64_t count = 0;
  int64_t padded = 0;  // Dk rounded up to whole vectors
  // exp(G): decay from the chunk's start to each token.
  HWY_ALIGN std::array<float, static_cast<size_t>(kDeltaChunk)> decay{};
  // exp(G_last - G): decay from each token to the chunk's end.
  HWY_ALIGN std::array<float, static_cast<size_t>(kDeltaChunk)> to_end{};
};

// products[i, j] = rows[i] . k[j] for j <= i; some products with j > i are written, too.
HWY_INLINE void lower_products(const float* rows, const float* k, int64_t count, int64_t padded,
                               float* products) {
  std::array<const float*, static_cast<size_t>(kDeltaChunk)> keys;
  for (int64_t j = 0; j < kDeltaChunk; ++j) {
    keys[static_cast<size_t>(j)] = k + std::min(j, count - 1) * padded;
  }
  constexpr auto kGroup = static_cast<int64_t>(tile::kDotGroup);
  for (int64_t j = 0; j < count; j += kGroup) {
    tile::DotRows(rows + j * padded, static_cast<size_t>(padded), static_cast<size_t>(count - j),
                  keys.data() + j, tile::kDotGroup, static_cast<size_t>(padded),
                  products + j * kDeltaChunk + j, static_cast<size_t>(kDeltaChunk));
  }
}

// Computes G, the prefix sums of a chunk's log decays g, and the decay and to_end of `chunk`.
HWY_INLINE void fill_decays(const float* g, Chunk& chunk, float* G) {
  const D d;
  float sum = 0;
  for (int64_t i = 0; i < chunk.count; ++i) {
    sum += g[i];
    G[i] = sum;
  }
  exp_all(G, chunk.count, chunk.decay.data());
  for (int64_t i = 0; i < chunk.count; i += kLanes) {
    const V to_end = hn::Sub(hn::Set(d, sum), hn::LoadU(d, G + i));
    hn::StoreU(math::Exp(d, hn::Min(to_end, hn::Zero(d))), d, chunk.to_end.data() + i);
  }
}

// target[i] += weights[i] . values over the lower triangle of `weights`, for tiles of rows;
// `diagonal` says whether j = i belongs to the triangle. Rows of a tile share the columns before
// the tile, then each row adds its further columns.
template <tile::Start kStart>
HWY_NOINLINE void add_lower(const float* weights, const float* values, int64_t count,
                            int64_t diagonal, const float* scale, float* target) {
  constexpr auto kStride = static_cast<size_t>(kDeltaChunk);
  const tile::StridedRows rows{values, kPanelWidth};
  for (int64_t i = 0; i < count; i += tile::kTileRows) {
    const auto n = static_cast<size_t>(std::min<int64_t>(tile::kTileRows, count - i));
    const auto common = static_cast<size_t>(i + diagonal);
    const tile::Coefficients lower{weights + i * kDeltaChunk, kStride, 1};
    float* out = target + i * kPanel;
    tile::AccumulateUpTo4<kStart>(n, lower, rows, kPanelWidth, common,
                                  scale == nullptr ? nullptr : scale + i, out, kPanelWidth);
    for (size_t r = 1; r < n; ++r) {
      tile::AccumulateRows<1, tile::Start::kValue>(lower.from(r, common), rows.from(common),
                                                   kPanelWidth, r, nullptr, out + r * kPanelWidth,
                                                   kPanelWidth);
    }
  }
}

}  // namespace heddle::ops::delta::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_LINEAR_ATTENTION_CHUNK_PRODUCTS_INL_H_
