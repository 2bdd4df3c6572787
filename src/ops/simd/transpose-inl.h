// SPDX-License-Identifier: Apache-2.0
// Transposes a square matrix of 32-bit numbers that is held in as many vectors as a vector has
// lanes. Included like math-inl.h, inside a file compiled through hwy/foreach_target.h. For vectors
// of 1, 8 and 16 lanes.
#if defined(HEDDLE_OPS_SIMD_TRANSPOSE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef HEDDLE_OPS_SIMD_TRANSPOSE_INL_H_
#undef HEDDLE_OPS_SIMD_TRANSPOSE_INL_H_
#else
#define HEDDLE_OPS_SIMD_TRANSPOSE_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/highway.h>

#include "ops/simd/load-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::simd::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Transposes: lane c of rows[r] is exchanged with lane r of rows[c]. Cost: 4 shuffles a vector with
// 16 lanes.
template <class D, class V, size_t kLanes>
HWY_INLINE void Transpose(D d, V (&rows)[kLanes]) {
  static_assert(sizeof(hn::TFromD<D>) == 4);
#if HWY_TARGET == HWY_SCALAR
  static_assert(kLanes == 1);
  (void)d;
  (void)rows;
#else
  static_assert(kLanes == 4 || kLanes == 8 || kLanes == 16);
  const hn::Repartition<uint64_t, D> d64;
  // First within blocks of four lanes: block b of quad[4 g + i] gets column 4 b + i of rows 4 g to
  // 4 g + 3.
  V quad[kLanes];
  HEDDLE_UNROLL
  for (size_t g = 0; g < kLanes; g += 4) {
    const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, rows[g], rows[g + 1]));
    const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, rows[g + 2], rows[g + 3]));
    const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, rows[g], rows[g + 1]));
    const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, rows[g + 2], rows[g + 3]));
    quad[g] = hn::BitCast(d, hn::InterleaveLower(d64, low01, low23));
    quad[g + 1] = hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23));
    quad[g + 2] = hn::BitCast(d, hn::InterleaveLower(d64, high01, high23));
    quad[g + 3] = hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23));
  }
  // Then whole blocks: rows[4 b + i] gets block b of quad[i], quad[4 + i], ...
  HEDDLE_UNROLL
  for (size_t i = 0; i < 4; ++i) {
    if constexpr (kLanes == 4) {
      rows[i] = quad[i];
    } else if constexpr (kLanes == 8) {
      rows[i] = hn::ConcatLowerLower(d, quad[4 + i], quad[i]);
      rows[4 + i] = hn::ConcatUpperUpper(d, quad[4 + i], quad[i]);
    } else {
      const V even01 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(quad[4 + i]), quad[i]);
      const V odd01 = hn::OddEvenBlocks(quad[4 + i], hn::SwapAdjacentBlocks(quad[i]));
      const V even23 = hn::OddEvenBlocks(hn::SwapAdjacentBlocks(quad[12 + i]), quad[8 + i]);
      const V odd23 = hn::OddEvenBlocks(quad[12 + i], hn::SwapAdjacentBlocks(quad[8 + i]));
      rows[i] = hn::ConcatLowerLower(d, even23, even01);
      rows[4 + i] = hn::ConcatLowerLower(d, odd23, odd01);
      rows[8 + i] = hn::ConcatUpperUpper(d, even23, even01);
      rows[12 + i] = hn::ConcatUpperUpper(d, odd23, odd01);
    }
  }
#endif
}

}  // namespace heddle::ops::simd::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif  // HEDDLE_OPS_SIMD_TRANSPOSE_INL_H_
