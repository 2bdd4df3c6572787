// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/int8_product.h"

#include "core/check.h"
#include "ops/gemm/int8_rows.h"

namespace heddle::ops {

bool int8_product_takes(const quant::PackedRows& rows) {
  const quant::RowFormat& format = rows.format;
  if (!rows.may_round_x || format.group_index != nullptr) return false;
  const int64_t group = format.group_size;
  const bool small_groups = group == 16 || group == 32;
  if (quant::has_wide_scales(format.scale) && !small_groups) return false;
  const uint8_t zero = format.code == quant::Code::kU8 ? 128 : 0;
  if (format.has_minima && (!small_groups || format.has_zeros || format.constant_zero != zero ||
                            format.code == quant::Code::kE2M1)) {
    return false;
  }
  const bool whole_row = format.num_groups() == 1;
  switch (format.code) {
    case quant::Code::kU4:
    case quant::Code::kE2M1:
      return whole_row || group == 32 || group == 64 || group % kInt4Chunk == 0 ||
             (group == 16 && format.code == quant::Code::kE2M1);
    case quant::Code::kU8:
      return !format.has_zeros && format.constant_zero == 128 &&
             (whole_row || small_groups || group % kInt8Step == 0);
    case quant::Code::kE4M3:
      return false;
  }
  return false;
}

}  // namespace heddle::ops

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
// False warnings about gcc's own intrinsics, gcc bug 105593.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <algorithm>
#include <bit>
#include <cstring>

#include <immintrin.h>

#include "ops/gemm/avx512_tile.h"
#include "ops/simd/targets.h"

#define HEDDLE_VNNI_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c")))
#define HEDDLE_VNNI_INLINE HEDDLE_VNNI_TARGET __attribute__((always_inline)) inline

namespace heddle::ops {

namespace {

using quant::Code;
using quant::ScaleType;

// Converts E4M3 codes, none of which may be NaN.
HEDDLE_VNNI_INLINE __m512 e4m3_to_floats(__m128i codes) {
  const __m512i bits = _mm512_cvtepu8_epi32(codes);
  const __m512i magnitudes = _mm512_slli_epi32(_mm512_and_si512(bits, _mm512_set1_epi32(0x7f)), 20);
  const __m512 numbers = _mm512_mul_ps(_mm512_castsi512_ps(magnitudes), _mm512_set1_ps(0x1p120f));
  const __m512i signs = _mm512_slli_epi32(_mm512_and_si512(bits, _mm512_set1_epi32(0x80)), 24);
  return _mm512_castsi512_ps(_mm512_or_si512(_mm512_castps_si512(numbers), signs));
}

// Loads the fp16 factors of sixteen groups of 16 or 32 columns, the first of which begins at a
// multiple of 256 columns. Each 256 columns share such a factor, so that one or two are needed. The
// two bytes after a row's last factor are read, too, and not used.
HEDDLE_VNNI_INLINE __m512 load_wide_scales(const std::byte* scales, int64_t group_size,
                                           int64_t first) {
  const int64_t at = first * group_size / quant::kWideScaleColumns;
  int32_t pair;
  std::memcpy(&pair, scales + 2 * at, sizeof(pair));
  const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
  return _mm512_permutexvar_ps(group_size == 32 ? halves : _mm512_setzero_si512(),
                               _mm512_castps128_ps512(_mm_cvtph_ps(_mm_cvtsi32_si128(pair))));
}

// The constant zero point that RowScales::sums must subtract; that of kU8 is a part of
// Int8Row::offsets().
float zero_left(const quant::RowFormat& format) {
  if (format.code == Code::kE2M1) return 12;  // offset that e2m1_table() adds to the numbers
  return format.code == Code::kU4 ? static_cast<float>(format.constant_zero) : 0.0f;
}

// The sizes that all rows of a format share. Computed once per block, because divisions are slow.
struct ScaleLayout {
  explicit ScaleLayout(const quant::RowFormat& format)
      : groups(format.num_groups()),
        group_size(groups == 1 ? padded_to_chunks(format.K) : format.group_size),
        scale_bytes(format.scale_bytes()),
        wide_bytes(2 * format.num_wide_scales()),
        rows_ahead(static_cast<int64_t>(kStreamAheadBytes) / format.code_bytes() + 1),
        zero(zero_left(format)),
        has_sums(format.has_minima || format.has_zeros || zero != 0) {}

  int64_t groups;
  int64_t group_size;  // width of the group if a row has only one, padding included
  int64_t scale_bytes;
  int64_t wide_bytes;
  int64_t rows_ahead;  // how many rows ahead scales are prefetched
  float zero;
  bool has_sums;  // whether RowScales::sums has numbers other than zero
};

// Calls store(first group, mask, numbers) for each sixteen scales of a row, converted to floats.
// `scales` may also point to the row's minima.
template <class Store>
HEDDLE_VNNI_INLINE void for_scales(const std::byte* scales, const quant::RowFormat& format,
                                   const ScaleLayout& layout, const Store& store) {
  const int64_t groups = layout.groups;
  const auto for_each = [&](const auto& load) HEDDLE_VNNI_TARGET {
    constexpr __mmask16 kAll = 0xffff;
    int64_t g = 0;
    for (; g + 16 <= groups; g += 16) store(g, kAll, load(g, kAll));
    if (g == groups) return;
    const auto mask = static_cast<__mmask16>((uint32_t{1} << (groups - g)) - 1);
    store(g, mask, load(g, mask));
  };
  switch (format.scale) {
    case ScaleType::kF32:
      return for_each([&](int64_t g, __mmask16 mask) HEDDLE_VNNI_TARGET {
        return _mm512_maskz_loadu_ps(mask, scales + 4 * g);
      });
    case ScaleType::kBf16:
      return for_each([&](int64_t g, __mmask16 mask) HEDDLE_VNNI_TARGET {
        return _mm512_castsi512_ps(_mm512_slli_epi32(
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, scales + 2 * g)), 16));
      });
    case ScaleType::kF16:
      return for_each([&](int64_t g, __mmask16 mask) HEDDLE_VNNI_TARGET {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, scales + 2 * g));
      });
    case ScaleType::kE8M0:
      return for_each([&](int64_t g, __mmask16 mask) HEDDLE_VNNI_TARGET {
        return _mm512_castsi512_ps(
            _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, scales + g)), 23));
      });
    case ScaleType::kE4M3Times:
    case ScaleType::kE4M3Over:
      return for_each([&](int64_t g, __mmask16 mask) HEDDLE_VNNI_TARGET {
        const __m512 factor = _mm512_set1_ps(*reinterpret_cast<const float*>(scales));
        const __m512 numbers =
            e4m3_to_floats(_mm_maskz_loadu_epi8(mask, scales + quant::kFactorBytes + g));
        return format.scale == ScaleType::kE4M3Times ? _mm512_mul_ps(numbers, factor)
                                                     : _mm512_div_ps(numbers, factor);
      });
    case ScaleType::kU8Times:
    case ScaleType::kI8Times:
      return for_each(
          [&, is_signed = format.scale == ScaleType::kI8Times, wide_bytes = layout.wide_bytes,
           group_size = format.group_size](int64_t g, __mmask16 mask) HEDDLE_VNNI_TARGET {
            const __m128i bytes = _mm_maskz_loadu_epi8(mask, scales + wide_bytes + g);
            const __m512i integers =
                is_signed ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
            return _mm512_maskz_mul_ps(mask, _mm512_cvtepi32_ps(integers),
                                       load_wide_scales(scales, group_size, g));
          });
  }
}

// One scale, of type kF32, kF16 or kBf16.
HEDDLE_VNNI_INLINE float load_scale(const std::byte* scales, const quant::RowFormat& format,
                                    int64_t group) {
  if (format.scale == ScaleType::kF32) return reinterpret_cast<const float*>(scales)[group];
  const auto bits = reinterpret_cast<const uint16_t*>(scales)[group];
  return format.scale == ScaleType::kF16 ? _cvtsh_ss(bits)
                                         : std::bit_cast<float>(uint32_t{bits} << 16);
}

// The scales of a row of weights as floats, and for each group the factor of its sum of x: its
// minimum, or its zero point times minus its scale. Sixteen zeros follow the scales.
struct RowScales {
  static constexpr int64_t kMaxGroups = quant::kMaxPackedWidth / 16;
  alignas(64) float scales[kMaxGroups + 32];
  alignas(64) float sums[kMaxGroups + 32];
};

// Prefetches the row of scales or zero points that is `rows` rows after this one.
HEDDLE_VNNI_INLINE void prefetch_rows_ahead(const void* row, int64_t row_bytes, int64_t rows) {
  const auto* const ahead = static_cast<const char*>(row) + rows * row_bytes;
  for (int64_t byte = 0; byte < row_bytes; byte += 64) _mm_prefetch(ahead + byte, _MM_HINT_T0);
}

HEDDLE_VNNI_INLINE void widen_row(const quant::PackedRows& weights, const ScaleLayout& layout,
                                  int64_t row, RowScales& to) {
  const quant::RowFormat& format = weights.format;
  const int64_t scale_row = weights.rows_per_scale == 1 ? row : weights.scale_row(row);
  const std::byte* const scales = weights.scales + scale_row * layout.scale_bytes;
  const uint8_t* const zeros =
      weights.zeros == nullptr ? nullptr : weights.zeros + row * layout.groups;
  prefetch_rows_ahead(scales, layout.scale_bytes, layout.rows_ahead);
  if (zeros != nullptr) prefetch_rows_ahead(zeros, layout.groups, layout.rows_ahead);
  _mm512_store_ps(to.scales + (layout.groups + 15) / 16 * 16, _mm512_setzero_ps());
  const __m512 constant = _mm512_set1_ps(layout.zero);
  for_scales(
      scales, format, layout, [&](int64_t g, __mmask16 mask, __m512 loaded) HEDDLE_VNNI_TARGET {
        const __m512 zero =
            zeros == nullptr
                ? constant
                : _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, zeros + g)));
        _mm512_store_ps(to.scales + g, loaded);
        _mm512_store_ps(to.sums + g, _mm512_fnmadd_ps(zero, loaded, _mm512_setzero_ps()));
      });
  if (!format.has_minima) return;
  for_scales(scales + layout.scale_bytes / 2, format, layout,
             [&](int64_t g, __mmask16, __m512 loaded)
                 HEDDLE_VNNI_TARGET { _mm512_store_ps(to.sums + g, loaded); });
}

// Converts the scales of `count` consecutive rows to floats.
HEDDLE_VNNI_TARGET __attribute__((noinline)) void widen_scales(const quant::PackedRows& weights,
                                                               const ScaleLayout& layout,
                                                               int64_t first, int64_t count,
                                                               RowScales* to) {
  for (int64_t i = 0; i < count; ++i) widen_row(weights, layout, first + i, to[i]);
}

// Adds for each group the term of its minimum or zero point: a factor times the group's sum of x.
template <int kRows>
HEDDLE_VNNI_INLINE void add_sums(const float* sums, int64_t groups, const Int8Row (&x)[kRows],
                                 __m512 (&totals)[kRows]) {
  for (int64_t g = 0; g < groups; g += 16) {
    const int64_t count = std::min<int64_t>(16, groups - g);
    const auto mask = static_cast<__mmask16>((uint32_t{1} << count) - 1);
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      totals[r] = _mm512_fmadd_ps(_mm512_load_ps(sums + g),
                                  _mm512_maskz_loadu_ps(mask, x[r].group_sums() + g), totals[r]);
    }
  }
}

// Number of scales that are loaded at once, for consecutive halves of chunks (64 columns each): one
// for each of 16 halves, or two (groups of 32) or four (groups of 16) for each of fewer halves.
// Weights in wider groups repeat their scale.
constexpr int64_t kFactors = 16;

HEDDLE_VNNI_INLINE __m512 scales_of_halves(const float* scales, int64_t group_size, int64_t half) {
  const int64_t first = half * kInt8Step / group_size;
  const __m512 loaded = _mm512_loadu_ps(scales + first);
  if (group_size <= kInt8Step) return loaded;
  if (group_size == kInt4Chunk) {
    return _mm512_permutexvar_ps(_mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7),
                                 loaded);
  }
  // A group ends at most once every three halves: the groups of the lanes are found by comparisons
  // instead of divisions.
  const __m512i lane = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  __m512i index = _mm512_setzero_si512();
  for (int64_t end = (first + 1) * group_size / kInt8Step - half; end < kFactors;
       end += group_size / kInt8Step) {
    const __mmask16 after = _mm512_cmpge_epi32_mask(lane, _mm512_set1_epi32(static_cast<int>(end)));
    index = _mm512_mask_add_epi32(index, after, index, _mm512_set1_epi32(1));
  }
  return _mm512_permutexvar_ps(index, loaded);
}

// The factors of the 16 lanes of a half, each of four columns; the half has kGroups groups.
template <int kGroups>
HEDDLE_VNNI_INLINE __m512 factors_of_lanes(const float* factors) {
  if constexpr (kGroups == 1) {
    return _mm512_set1_ps(factors[0]);
  } else if constexpr (kGroups == 2) {
    return _mm512_insertf32x8(_mm512_set1_ps(factors[0]), _mm256_set1_ps(factors[1]), 1);
  } else {
    const __m512i groups = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutexvar_ps(groups, _mm512_castps128_ps512(_mm_loadu_ps(factors)));
  }
}

// The scales of x, of which each half has one, repeated for each of the half's kGroups groups.
template <int kGroups>
HEDDLE_VNNI_INLINE __m512 repeated(__m512 scales) {
  if constexpr (kGroups == 1) return scales;
  const __m512i halves = kGroups == 2
                             ? _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7)
                             : _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
  return _mm512_permutexvar_ps(halves, scales);
}

// Twice the value of an E2M1 code, plus 12.
HEDDLE_VNNI_INLINE __m512i e2m1_table() {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

// The partial sums of kRows rows of x with one row of 4-bit weights. kFloats means kE2M1, whose
// codes are converted by a table. kGroups is the number of weight scales for each 64 columns.
//
// For each row of x, a chunk costs two dot products of bytes, which are exact, and two
// multiply-adds with the product of both scales. kU4 codes in the upper halves of bytes are not
// shifted down.
template <int kRows, bool kFloats, int kGroups>
HEDDLE_VNNI_INLINE void dot4_row(const quant::PackedRows& weights, int64_t weight_row,
                                 int64_t group_size, const float* scales, const Int8Row (&x)[kRows],
                                 __m512 (&totals)[kRows]) {
  const quant::RowFormat& format = weights.format;
  const int64_t chunks = padded_to_chunks(format.K) / kInt4Chunk;
  // Half chunks for which one load of factors suffices.
  constexpr int64_t kHalves = kFactors / kGroups;
  const uint8_t* const codes = weights.row_codes(weight_row);
  const __m512i low_bits = _mm512_set1_epi8(15);
  const __m512i high_bits = _mm512_set1_epi8(static_cast<char>(0xf0));
  const __m512i table = e2m1_table();
  alignas(64) float factors[kRows][kFactors];
  __m512 sums[2][kRows];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) sums[0][r] = sums[1][r] = _mm512_setzero_ps();

  for (int64_t begin = 0; begin < chunks; begin += kHalves / 2) {
    const int64_t end = std::min(begin + kHalves / 2, chunks);
    const __m512 weight_scales = scales_of_halves(scales, group_size, 2 * begin);
    const auto mask = static_cast<__mmask16>((uint32_t{1} << (2 * (end - begin))) - 1);
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512 x_scales = _mm512_maskz_loadu_ps(mask, x[r].scales() + 2 * begin);
      _mm512_store_ps(factors[r], _mm512_mul_ps(weight_scales, repeated<kGroups>(x_scales)));
    }
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      const int64_t half = 2 * (chunk - begin);
      prefetch_ahead(codes + chunk * 64);
      const __m512i both = _mm512_load_si512(codes + chunk * 64);
      __m512i low = _mm512_and_si512(both, low_bits);
      __m512i high = _mm512_and_si512(both, high_bits);
      if constexpr (kFloats) {
        low = _mm512_shuffle_epi8(table, low);
        high = _mm512_shuffle_epi8(table, _mm512_srli_epi16(high, 4));
      }
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const int8_t* const values = x[r].values() + chunk * kInt4Chunk;
        const __m512i dots[2] = {
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, _mm512_load_si512(values)),
            _mm512_dpbusd_epi32(_mm512_setzero_si512(), high,
                                _mm512_load_si512(values + kInt8Step))};
        HEDDLE_UNROLL
        for (int i = 0; i < 2; ++i) {
          const __m512 factor = factors_of_lanes<kGroups>(factors[r] + kGroups * (half + i));
          sums[i][r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[i]), factor, sums[i][r]);
        }
      }
    }
  }
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) totals[r] = _mm512_add_ps(sums[0][r], sums[1][r]);
}

// The same partial sums for a row of 8-bit weights.
template <int kRows>
HEDDLE_VNNI_INLINE void dot8_row(const quant::PackedRows& weights, int64_t weight_row,
                                 const Int8Row (&x)[kRows], __m512 (&totals)[kRows]) {
  const quant::RowFormat& format = weights.format;
  const int64_t steps = (format.K + kInt8Step - 1) / kInt8Step;
  const int64_t steps_per_group = format.num_groups() > 1 ? format.group_size / kInt8Step : steps;
  const uint8_t* const codes = weights.row_codes(weight_row);
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) totals[r] = _mm512_setzero_ps();
  for (int64_t begin = 0, group = 0; begin < steps; begin += steps_per_group, ++group) {
    const int64_t end = std::min(begin + steps_per_group, steps);
    __m512 sums[kRows];
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) sums[r] = _mm512_setzero_ps();
    for (int64_t i = begin; i < end; ++i) {
      prefetch_ahead(codes + i * kInt8Step);
      const __m512i weight = _mm512_load_si512(codes + i * kInt8Step);
      // One pointer per row and offsets that all rows share, because there are few registers.
      const int64_t values = i * kInt8Step;
      const int64_t offsets = values + x[0].width;
      const int64_t scales = 2 * x[0].width + 4 * i;
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const std::byte* const row = x[r].begin;
        const __m512i dot = _mm512_dpbusd_epi32(_mm512_load_si512(row + offsets), weight,
                                                _mm512_load_si512(row + values));
        const __m512 scale = _mm512_set1_ps(*reinterpret_cast<const float*>(row + scales));
        sums[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, sums[r]);
      }
    }
    const __m512 scale = _mm512_set1_ps(load_scale(weights.row_scales(weight_row), format, group));
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) totals[r] = _mm512_fmadd_ps(sums[r], scale, totals[r]);
  }
}

// The same for 8-bit weights in groups of 16 or 32: a step of 64 columns has four scales, some of
// them equal.
template <int kRows>
HEDDLE_VNNI_INLINE void dot8_groups_row(const quant::PackedRows& weights, int64_t weight_row,
                                        const float* scales, const Int8Row (&x)[kRows],
                                        __m512 (&totals)[kRows]) {
  constexpr int64_t kSteps = kFactors / 4;  // steps for which one load of factors suffices
  const int64_t steps = (weights.format.K + kInt8Step - 1) / kInt8Step;
  const bool in_pairs = weights.format.group_size == 32;
  const uint8_t* const codes = weights.row_codes(weight_row);
  const __m512i pairs = _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7);
  alignas(64) float factors[kRows][kFactors];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) totals[r] = _mm512_setzero_ps();
  for (int64_t begin = 0; begin < steps; begin += kSteps) {
    const int64_t end = std::min(begin + kSteps, steps);
    const __m512 weight_scales =
        in_pairs ? _mm512_permutexvar_ps(pairs, _mm512_loadu_ps(scales + 2 * begin))
                 : _mm512_loadu_ps(scales + 4 * begin);
    const auto mask = static_cast<__mmask16>((uint32_t{1} << (end - begin)) - 1);
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512 x_scales = _mm512_maskz_loadu_ps(mask, x[r].scales() + begin);
      _mm512_store_ps(factors[r], _mm512_mul_ps(weight_scales, repeated<4>(x_scales)));
    }
    const auto add_step = [&](int64_t i) HEDDLE_VNNI_TARGET {
      prefetch_ahead(codes + i * kInt8Step);
      const __m512i weight = _mm512_load_si512(codes + i * kInt8Step);
      const int64_t values = i * kInt8Step;
      const int64_t offsets = values + x[0].width;
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const __m512i dot = _mm512_dpbusd_epi32(_mm512_load_si512(x[r].begin + offsets), weight,
                                                _mm512_load_si512(x[r].begin + values));
        const __m512 factor = factors_of_lanes<4>(factors[r] + 4 * (i - begin));
        totals[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), factor, totals[r]);
      }
    };
    if (end == begin + kSteps) {
      HEDDLE_UNROLL
      for (int64_t i = 0; i < kSteps; ++i) add_step(begin + i);
    } else {
      for (int64_t i = begin; i < end; ++i) add_step(i);
    }
  }
}

enum class Kind : uint8_t {
  kInt4,
  kInt4Groups32,
  kFloat4,
  kFloat4Groups32,
  kFloat4Groups16,
  kInt8,
  kInt8Groups
};

// Whether codes are converted by the table of E2M1, whose numbers are twice as large.
constexpr bool has_table(Kind kind) {
  return kind == Kind::kFloat4 || kind == Kind::kFloat4Groups32 || kind == Kind::kFloat4Groups16;
}

Kind kind_of(const quant::RowFormat& format) {
  const bool groups32 = format.num_groups() > 1 && format.group_size == 32;
  if (format.code == Code::kU4) return groups32 ? Kind::kInt4Groups32 : Kind::kInt4;
  const bool groups16 = format.num_groups() > 1 && format.group_size == 16;
  if (format.code == Code::kE2M1 && groups16) return Kind::kFloat4Groups16;
  if (format.code == Code::kE2M1) return groups32 ? Kind::kFloat4Groups32 : Kind::kFloat4;
  const bool small_groups = format.group_size == 16 || format.group_size == 32;
  return small_groups ? Kind::kInt8Groups : Kind::kInt8;
}

// kRows rows of x times kColumns rows of the weight. Weight rows are read one after the other, in
// memory order: reading several at a time would halve the bandwidth.
template <Kind kKind, int kRows, int kColumns>
HEDDLE_VNNI_TARGET void dot_tile(const Product& p, int64_t row, int64_t column,
                                 const ScaleLayout& layout, const RowScales* scales) {
  Int8Row x[kRows];
  __m512 sums[kRows][kColumns];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    x[r] = {p.x_int8 + p.x_row(row + r) * p.x_int8_stride, padded_to_chunks(p.K)};
  }
  for (int c = 0; c < kColumns; ++c) {
    const int64_t weight_row = p.packed_row + column + c;
    __m512 totals[kRows];
    if constexpr (kKind == Kind::kInt8) {
      dot8_row<kRows>(*p.packed, weight_row, x, totals);
    } else if constexpr (kKind == Kind::kInt8Groups) {
      dot8_groups_row<kRows>(*p.packed, weight_row, scales[c].scales, x, totals);
    } else {
      constexpr bool kGroups32 = kKind == Kind::kInt4Groups32 || kKind == Kind::kFloat4Groups32;
      constexpr int kGroups = kKind == Kind::kFloat4Groups16 ? 4 : kGroups32 ? 2 : 1;
      dot4_row<kRows, has_table(kKind), kGroups>(*p.packed, weight_row, layout.group_size,
                                                 scales[c].scales, x, totals);
    }
    if (kKind != Kind::kInt8 && layout.has_sums) {
      add_sums<kRows>(scales[c].sums, layout.groups, x, totals);
    }
    if constexpr (has_table(kKind)) {
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) totals[r] = _mm512_mul_ps(totals[r], _mm512_set1_ps(0.5f));
    }
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) sums[r][c] = totals[r];
  }
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) store_sums(p, row + r, column, sums[r]);
}

// All rows of the block times `kColumns` columns. `scales` has room for the scales of kColumns
// rows.
template <Kind kKind, int kColumns>
void dot_rows(const Product& p, const Block& block, int64_t column, const ScaleLayout& layout,
              RowScales* scales) {
  if (kKind != Kind::kInt8) {
    widen_scales(*p.packed, layout, p.packed_row + column, kColumns, scales);
  }
  int64_t row = block.row_begin;
  for (; row + 4 <= block.row_end; row += 4)
    dot_tile<kKind, 4, kColumns>(p, row, column, layout, scales);
  switch (block.row_end - row) {
    case 1:
      return dot_tile<kKind, 1, kColumns>(p, row, column, layout, scales);
    case 2:
      return dot_tile<kKind, 2, kColumns>(p, row, column, layout, scales);
    case 3:
      return dot_tile<kKind, 3, kColumns>(p, row, column, layout, scales);
    default:
      return;
  }
}

template <Kind kKind>
void dot_block(const Product& p, const Block& block) {
  const ScaleLayout layout(p.packed->format);
  RowScales scales[4];
  int64_t column = block.column_begin;
  for (; column + 4 <= block.column_end; column += 4) {
    dot_rows<kKind, 4>(p, block, column, layout, scales);
  }
  for (; column < block.column_end; ++column) dot_rows<kKind, 1>(p, block, column, layout, scales);
}

}  // namespace

bool has_int8_products() {
  static const bool present =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni");
  return present;
}

void int8_dot(const Product& p, const Block& block) {
  HEDDLE_CHECK_LE(p.K, quant::kMaxPackedWidth);
  switch (kind_of(p.packed->format)) {
    case Kind::kInt4:
      return dot_block<Kind::kInt4>(p, block);
    case Kind::kInt4Groups32:
      return dot_block<Kind::kInt4Groups32>(p, block);
    case Kind::kFloat4:
      return dot_block<Kind::kFloat4>(p, block);
    case Kind::kFloat4Groups32:
      return dot_block<Kind::kFloat4Groups32>(p, block);
    case Kind::kFloat4Groups16:
      return dot_block<Kind::kFloat4Groups16>(p, block);
    case Kind::kInt8:
      return dot_block<Kind::kInt8>(p, block);
    case Kind::kInt8Groups:
      return dot_block<Kind::kInt8Groups>(p, block);
  }
}

}  // namespace heddle::ops

#else  // not x86-64

namespace heddle::ops {

bool has_int8_products() { return false; }

void int8_dot(const Product&, const Block&) { HEDDLE_CHECK(has_int8_products()); }

}  // namespace heddle::ops

#endif
