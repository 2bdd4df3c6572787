// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/int8_rows.h"

#include "core/check.h"
#include "ops/gemm/int8_product.h"

namespace heddle::ops {

int64_t int8_row_bytes(int64_t K) {
  const int64_t width = padded_to_chunks(K);
  constexpr int64_t kSmallestGroup = 16;
  const int64_t scales = (width / kInt8Step * 4 + 63) / 64 * 64;
  const int64_t sums = (width / kSmallestGroup * 4 + 63) / 64 * 64;
  return 2 * width + scales + sums;
}

}  // namespace heddle::ops

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
// False warnings about gcc's own intrinsics, gcc bug 105593.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <algorithm>
#include <limits>

#include <immintrin.h>

#include "ops/simd/targets.h"

namespace heddle::ops {

__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni"))) void quantise_row(
    const float* x, const quant::RowFormat& format, std::byte* to) {
  const int64_t K = format.K;
  const Int8Row row{to, padded_to_chunks(K)};
  auto* const values = reinterpret_cast<int8_t*>(to);
  auto* const offsets = reinterpret_cast<int32_t*>(to + row.width);
  auto* const scales = const_cast<float*>(row.scales());
  auto* const group_sums = const_cast<float*>(row.group_sums());
  const int64_t groups = format.num_groups();
  const bool sixteenths = format.code == quant::Code::kU4;
  std::fill_n(group_sums, groups, 0.0f);
  const __m512i ones = _mm512_set1_epi8(1);
  for (int64_t k = 0; k < row.width; k += kInt8Step) {
    __m512 part[4];
    __m512 largest = _mm512_setzero_ps();
    HEDDLE_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int64_t left = std::clamp<int64_t>(K - k - 16 * i, 0, 16);
      part[i] =
          _mm512_maskz_loadu_ps(static_cast<__mmask16>((uint32_t{1} << left) - 1), x + k + 16 * i);
      largest = _mm512_max_ps(largest, _mm512_abs_ps(part[i]));
    }
    const float magnitude = _mm512_reduce_max_ps(largest);
    // The divisor must not be zero. A NaN in x does not count as a magnitude but must not be lost:
    // see below.
    const float scale = magnitude > 0 ? magnitude / 127.0f : 1.0f;
    const __m512 inverse = _mm512_set1_ps(1.0f / scale);
    __mmask16 not_numbers = 0;
    HEDDLE_UNROLL
    for (int i = 0; i < 4; ++i) {
      not_numbers |= _mm512_cmp_ps_mask(part[i], part[i], _CMP_UNORD_Q);
      const __m512i rounded = _mm512_cvtps_epi32(_mm512_mul_ps(part[i], inverse));
      _mm_store_si128(reinterpret_cast<__m128i*>(values + k + 16 * i),
                      _mm512_cvtsepi32_epi8(rounded));
    }
    // A step of 64 columns with a NaN or an infinity becomes NaN, as in a product of floats.
    const bool finite = not_numbers == 0 && magnitude <= std::numeric_limits<float>::max();
    const float kept = finite ? scale : std::numeric_limits<float>::quiet_NaN();
    scales[k / kInt8Step] = sixteenths && k / kInt8Step % 2 == 1 ? kept / 16 : kept;
    const __m512i stored = _mm512_load_si512(values + k);
    const __m512i lane_sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, stored);
    _mm512_store_si512(offsets + k / 4,
                       _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(lane_sums, 7)));
    const __m256i low = _mm512_castsi512_si256(lane_sums);
    const __m256i high = _mm512_extracti64x4_epi64(lane_sums, 1);
    const int32_t sums[2] = {_mm512_reduce_add_epi32(_mm512_zextsi256_si512(low)),
                             _mm512_reduce_add_epi32(_mm512_zextsi256_si512(high))};
    if (format.group_size == 16) {
      alignas(64) int32_t lanes[16];  // sums of four columns each
      _mm512_store_si512(lanes, lane_sums);
      for (int64_t i = 0; i < 4 && k + 16 * i < K; ++i) {
        const int32_t* const four = lanes + 4 * i;
        group_sums[k / 16 + i] = kept * static_cast<float>(four[0] + four[1] + four[2] + four[3]);
      }
      continue;
    }
    for (int64_t half = 0; half < 2 && k + 32 * half < K; ++half) {
      group_sums[(k + 32 * half) / format.group_size] += kept * static_cast<float>(sums[half]);
    }
  }
}

}  // namespace heddle::ops

#else  // not x86-64

namespace heddle::ops {

void quantise_row(const float*, const quant::RowFormat&, std::byte*) {
  HEDDLE_CHECK(has_int8_products());
}

}  // namespace heddle::ops

#endif
