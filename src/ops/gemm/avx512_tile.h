// SPDX-License-Identifier: Apache-2.0
// Functions that the AVX-512 kernels of this folder share. The kernels multiply a few rows of x
// with a few columns of y (rows of the weight) at a time, with one vector of partial sums for each
// element.
//
// For x86-64 only. Include after <immintrin.h>, and call from functions whose target attribute
// names at least the instructions used here.
#pragma once

#include <cstdint>

#include <immintrin.h>

#include "ops/gemm/product.h"
#include "ops/simd/targets.h"

#define HEDDLE_TILE_INLINE \
  __attribute__((target("avx512f,avx512dq,avx512vl"), always_inline)) inline

namespace heddle::ops {

// Prefetches weights that will be read soon after `weights`; the kernel reads them in memory order.
HEDDLE_TILE_INLINE void prefetch_ahead(const void* weights) {
  const auto line = reinterpret_cast<uintptr_t>(weights) + kStreamAheadBytes;
  _mm_prefetch(reinterpret_cast<const char*>(line), _MM_HINT_T0);
}

// Sums the lanes of four vectors: lane i of the result is the sum of v[i].
HEDDLE_TILE_INLINE __m128 fold_lanes(const __m512 (&v)[4]) {
  const __m512 low = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 high = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  const __m512 blocks =
      _mm512_add_ps(_mm512_shuffle_ps(low, high, 0x44), _mm512_shuffle_ps(low, high, 0xee));
  const __m256 halves =
      _mm256_add_ps(_mm512_castps512_ps256(blocks), _mm512_extractf32x8_ps(blocks, 1));
  return _mm_add_ps(_mm256_castps256_ps128(halves), _mm256_extractf128_ps(halves, 1));
}

// Computes kColumns elements of one row of y from their vectors of partial sums. The order of the
// additions does not depend on kColumns.
template <int kColumns>
HEDDLE_TILE_INLINE void store_sums(const Product& p, int64_t row, int64_t column,
                                   const __m512 (&sums)[kColumns]) {
  static_assert(kColumns <= 4);
  __m512 four[4];
  HEDDLE_UNROLL
  for (int c = 0; c < 4; ++c) four[c] = c < kColumns ? sums[c % kColumns] : _mm512_setzero_ps();
  constexpr auto kMask = static_cast<__mmask8>((1u << kColumns) - 1);
  __m128 folded = fold_lanes(four);
  if (p.bias != nullptr) {
    folded = _mm_add_ps(folded, _mm_maskz_loadu_ps(kMask, p.bias + column));
  }
  _mm_mask_storeu_ps(p.y + row * p.y_stride + column, kMask, folded);
}

}  // namespace heddle::ops
