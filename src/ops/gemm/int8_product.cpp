// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/int8_product.h"

#include <atomic>

#include "core/check.h"

namespace heddle::ops {

namespace {

constexpr int64_t kStep = 64;    // columns that share a scale of x; a vector of bytes
constexpr int64_t kChunk = 128;  // columns of 64 bytes of 4-bit codes

constexpr int64_t padded(int64_t K) { return (K + kChunk - 1) / kChunk * kChunk; }

// A quantised row of x, rounded up to whole chunks with zeros.
//   values      [padded] int8
//   offsets     [padded / 4] int32: -128 times the sum of four values, what a zero point of 128
//               takes off a lane's sum
//   scales      [padded / 64] fp32
//   group_sums  [groups] fp32: scale * sum of a weight group's values, what a zero point of 1 takes
struct Int8Row {
  const std::byte* begin;
  int64_t width;  // padded K

  [[nodiscard]] const int8_t* values() const { return reinterpret_cast<const int8_t*>(begin); }

  [[nodiscard]] const int32_t* offsets() const {
    return reinterpret_cast<const int32_t*>(begin + width);
  }

  [[nodiscard]] const float* scales() const {
    return reinterpret_cast<const float*>(begin + 2 * width);
  }

  [[nodiscard]] const float* group_sums() const {
    return reinterpret_cast<const float*>(begin + 2 * width + (width / kStep * 4 + 63) / 64 * 64);
  }
};

std::atomic<bool> hidden_for_test{false};

}  // namespace

int64_t int8_row_bytes(int64_t K) {
  const int64_t width = padded(K);
  constexpr int64_t kSmallestGroup = 32;
  const int64_t scales = (width / kStep * 4 + 63) / 64 * 64;
  const int64_t sums = (width / kSmallestGroup * 4 + 63) / 64 * 64;
  return 2 * width + scales + sums;
}

bool int8_product_takes(const quant::PackedRows& rows) {
  const quant::RowFormat& format = rows.format;
  if (!rows.may_round_x || format.group_index != nullptr || !has_int8_products()) return false;
  const int64_t group = format.group_size;
  const bool whole_row = format.num_groups() == 1;
  switch (format.code) {
    case quant::Code::kU4:
    case quant::Code::kE2M1:
      return whole_row || group == 32 || group == 64 || group % kChunk == 0;
    case quant::Code::kU8:
      return !format.has_zeros && format.constant_zero == 128 && (whole_row || group % kStep == 0);
    case quant::Code::kE4M3:
      return false;
  }
  return false;
}

ScopedNoInt8ProductsForTest::ScopedNoInt8ProductsForTest() { hidden_for_test.store(true); }

ScopedNoInt8ProductsForTest::~ScopedNoInt8ProductsForTest() { hidden_for_test.store(false); }

}  // namespace heddle::ops

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"  // gcc's own intrinsics, its bug 105593
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <algorithm>
#include <limits>

#include <immintrin.h>

#include "ops/simd/unroll.h"

#define HEDDLE_VNNI_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c")))
#define HEDDLE_VNNI_INLINE HEDDLE_VNNI_TARGET __attribute__((always_inline)) inline

namespace heddle::ops {

namespace {

using quant::Code;
using quant::ScaleType;

// `count` (at most 16) scales as floats, zeros behind them.
HEDDLE_VNNI_INLINE __m512 load_scales(const std::byte* scales, ScaleType type, int64_t first,
                                      int64_t count) {
  const auto mask = static_cast<__mmask16>((uint32_t{1} << std::min<int64_t>(count, 16)) - 1);
  switch (type) {
    case ScaleType::kF32:
      return _mm512_maskz_loadu_ps(mask, scales + 4 * first);
    case ScaleType::kBf16:
      return _mm512_castsi512_ps(_mm512_slli_epi32(
          _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, scales + 2 * first)), 16));
    case ScaleType::kF16:
      return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, scales + 2 * first));
    case ScaleType::kE8M0:
      return _mm512_castsi512_ps(
          _mm512_slli_epi32(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, scales + first)), 23));
  }
  return _mm512_setzero_ps();
}

// Which groups the two halves of a chunk of 128 columns belong to, as indices into 16 scales.
struct GroupWalk {
  int64_t chunks_per_load;  // chunks whose groups 16 scales cover
  int64_t groups_per_load;
  int32_t low_first, low_second;    // groups of columns 0..31 and 32..63 of the first chunk
  int32_t high_first, high_second;  // and of its columns 64..95 and 96..127
  int32_t step;                     // groups from one chunk to the next

  explicit GroupWalk(const quant::RowFormat& format) {
    if (format.num_groups() > 1 && format.group_size == 32) {
      *this = GroupWalk(4, 16, 0, 1, 2, 3, 4);
    } else if (format.num_groups() > 1 && format.group_size == 64) {
      *this = GroupWalk(8, 16, 0, 0, 1, 1, 2);
    } else if (format.num_groups() > 1 && format.group_size == 128) {
      *this = GroupWalk(16, 16, 0, 0, 0, 0, 1);
    } else {
      const int64_t chunks = (std::min(format.group_size, format.K) + kChunk - 1) / kChunk;
      *this = GroupWalk(chunks, 1, 0, 0, 0, 0, 0);
    }
  }

 private:
  GroupWalk(int64_t chunks, int64_t groups, int32_t a, int32_t b, int32_t c, int32_t d, int32_t s)
      : chunks_per_load(chunks),
        groups_per_load(groups),
        low_first(a),
        low_second(b),
        high_first(c),
        high_second(d),
        step(s) {}
};

HEDDLE_VNNI_INLINE __m512i halves_of(int32_t first, int32_t second) {
  return _mm512_inserti64x4(_mm512_set1_epi32(first), _mm256_set1_epi32(second), 1);
}

// Twice the value of an E2M1 code, plus 12.
HEDDLE_VNNI_INLINE __m512i e2m1_table() {
  return _mm512_broadcast_i32x4(
      _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
}

constexpr int64_t kPrefetchBytes = 4096;  // how far ahead of the sums weights are asked for

// One tile of 4-bit weights. kE2M1: codes pass through a table first.
template <int kRows, int kColumns, bool kFloats>
HEDDLE_VNNI_TARGET void dot4_tile(const Product& p, int64_t row, int64_t column) {
  const quant::PackedRows& weights = *p.packed;
  const quant::RowFormat& format = weights.format;
  const int64_t groups = format.num_groups();
  const int64_t chunks = padded(p.K) / kChunk;
  const GroupWalk walk(format);
  const int64_t first_row = p.packed_row + column;

  Int8Row x[kRows];
  const uint8_t* codes[kColumns];
  const std::byte* scales[kColumns];
  __m512 sums[kRows][kColumns];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    x[r] = {p.x_int8 + p.x_row(row + r) * p.x_int8_stride, padded(p.K)};
  }
  HEDDLE_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    codes[c] = weights.row_codes(first_row + c);
    scales[c] = weights.row_scales(first_row + c);
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) sums[r][c] = _mm512_setzero_ps();
  }
  const __m512i nibble = _mm512_set1_epi8(15);
  const __m512i table = e2m1_table();
  const __m512i step = _mm512_set1_epi32(walk.step);

  int64_t group = 0;
  for (int64_t begin = 0; begin < chunks; begin += walk.chunks_per_load) {
    const int64_t end = std::min(begin + walk.chunks_per_load, chunks);
    __m512 group_scales[kColumns];
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      group_scales[c] = load_scales(scales[c], format.scale, group,
                                    std::min(walk.groups_per_load, groups - group));
    }
    group += walk.groups_per_load;
    __m512i low_group = halves_of(walk.low_first, walk.low_second);
    __m512i high_group = halves_of(walk.high_first, walk.high_second);
    for (int64_t chunk = begin; chunk < end; ++chunk) {
      __m512i x_low[kRows], x_high[kRows];
      __m512 low_scale[kRows], high_scale[kRows];
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        x_low[r] = _mm512_load_si512(x[r].values() + chunk * kChunk);
        x_high[r] = _mm512_load_si512(x[r].values() + chunk * kChunk + kStep);
        low_scale[r] = _mm512_set1_ps(x[r].scales()[2 * chunk]);
        high_scale[r] = _mm512_set1_ps(x[r].scales()[2 * chunk + 1]);
      }
      HEDDLE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const __m512i both = _mm512_load_si512(codes[c] + chunk * 64);
        _mm_prefetch(reinterpret_cast<const char*>(codes[c] + chunk * 64 + kPrefetchBytes),
                     _MM_HINT_T0);
        __m512i low = _mm512_and_si512(both, nibble);
        __m512i high = _mm512_and_si512(_mm512_srli_epi16(both, 4), nibble);
        if constexpr (kFloats) {
          low = _mm512_shuffle_epi8(table, low);
          high = _mm512_shuffle_epi8(table, high);
        }
        const __m512 scale_low = _mm512_permutexvar_ps(low_group, group_scales[c]);
        const __m512 scale_high = _mm512_permutexvar_ps(high_group, group_scales[c]);
        HEDDLE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const __m512i dot_low = _mm512_dpbusd_epi32(_mm512_setzero_si512(), low, x_low[r]);
          const __m512i dot_high = _mm512_dpbusd_epi32(_mm512_setzero_si512(), high, x_high[r]);
          sums[r][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot_low),
                                       _mm512_mul_ps(scale_low, low_scale[r]), sums[r][c]);
          sums[r][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot_high),
                                       _mm512_mul_ps(scale_high, high_scale[r]), sums[r][c]);
        }
      }
      low_group = _mm512_add_epi32(low_group, step);
      high_group = _mm512_add_epi32(high_group, step);
    }
  }

  // What the zero points take off, 16 groups at a time.
  const __m512 constant_zero =
      _mm512_set1_ps(kFloats ? 12.0f : static_cast<float>(format.constant_zero));
  HEDDLE_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    const uint8_t* const zeros = weights.row_zeros(first_row + c);
    for (int64_t g = 0; g < groups; g += 16) {
      const int64_t count = std::min<int64_t>(16, groups - g);
      const auto mask = static_cast<__mmask16>((uint32_t{1} << count) - 1);
      const __m512 zero =
          zeros == nullptr
              ? constant_zero
              : _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(mask, zeros + g)));
      const __m512 taken = _mm512_mul_ps(zero, load_scales(scales[c], format.scale, g, count));
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        sums[r][c] =
            _mm512_fnmadd_ps(taken, _mm512_maskz_loadu_ps(mask, x[r].group_sums() + g), sums[r][c]);
      }
    }
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      float sum = _mm512_reduce_add_ps(sums[r][c]);
      if constexpr (kFloats) sum *= 0.5f;
      p.y[(row + r) * p.y_stride + column + c] = p.bias == nullptr ? sum : sum + p.bias[column + c];
    }
  }
}

template <int kRows, int kColumns>
HEDDLE_VNNI_TARGET void dot8_tile(const Product& p, int64_t row, int64_t column) {
  const quant::PackedRows& weights = *p.packed;
  const quant::RowFormat& format = weights.format;
  const int64_t steps = (p.K + kStep - 1) / kStep;
  const int64_t first_row = p.packed_row + column;
  const bool grouped = format.num_groups() > 1;
  const int64_t steps_per_group = grouped ? format.group_size / kStep : steps;

  Int8Row x[kRows];
  const uint8_t* codes[kColumns];
  __m512 totals[kRows][kColumns];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    x[r] = {p.x_int8 + p.x_row(row + r) * p.x_int8_stride, padded(p.K)};
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; ++c) totals[r][c] = _mm512_setzero_ps();
  }
  HEDDLE_UNROLL
  for (int c = 0; c < kColumns; ++c) codes[c] = weights.row_codes(first_row + c);

  for (int64_t begin = 0, group = 0; begin < steps; begin += steps_per_group, ++group) {
    const int64_t end = std::min(begin + steps_per_group, steps);
    __m512 sums[kRows][kColumns];
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      HEDDLE_UNROLL
      for (int c = 0; c < kColumns; ++c) sums[r][c] = _mm512_setzero_ps();
    }
    for (int64_t i = begin; i < end; ++i) {
      __m512i values[kRows], offsets[kRows];
      __m512 scale[kRows];
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        values[r] = _mm512_load_si512(x[r].values() + i * kStep);
        offsets[r] = _mm512_load_si512(x[r].offsets() + i * (kStep / 4));
        scale[r] = _mm512_set1_ps(x[r].scales()[i]);
      }
      HEDDLE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const __m512i weight = _mm512_load_si512(codes[c] + i * kStep);
        _mm_prefetch(reinterpret_cast<const char*>(codes[c] + i * kStep + kPrefetchBytes),
                     _MM_HINT_T0);
        HEDDLE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const __m512i dot = _mm512_dpbusd_epi32(offsets[r], weight, values[r]);
          sums[r][c] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale[r], sums[r][c]);
        }
      }
    }
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const __m512 scale = _mm512_broadcastss_ps(_mm512_castps512_ps128(
          load_scales(weights.row_scales(first_row + c), format.scale, group, 1)));
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        totals[r][c] = _mm512_fmadd_ps(sums[r][c], scale, totals[r][c]);
      }
    }
  }
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      const float sum = _mm512_reduce_add_ps(totals[r][c]);
      p.y[(row + r) * p.y_stride + column + c] = p.bias == nullptr ? sum : sum + p.bias[column + c];
    }
  }
}

template <int kRows, int kColumns>
void dot_tile(const Product& p, int64_t row, int64_t column) {
  switch (p.packed->format.code) {
    case Code::kU4:
      return dot4_tile<kRows, kColumns, false>(p, row, column);
    case Code::kE2M1:
      return dot4_tile<kRows, kColumns, true>(p, row, column);
    default:
      return dot8_tile<kRows, kColumns>(p, row, column);
  }
}

// All rows [begin, end) of `kColumns` columns.
template <int kColumns>
void dot_rows(const Product& p, int64_t begin, int64_t end, int64_t column) {
  int64_t row = begin;
  for (; row + 4 <= end; row += 4) dot_tile<4, kColumns>(p, row, column);
  switch (end - row) {
    case 1:
      return dot_tile<1, kColumns>(p, row, column);
    case 2:
      return dot_tile<2, kColumns>(p, row, column);
    case 3:
      return dot_tile<3, kColumns>(p, row, column);
    default:
      return;
  }
}

}  // namespace

bool has_int8_products() {
  static const bool present =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vnni");
  return present && !hidden_for_test.load(std::memory_order_relaxed);
}

HEDDLE_VNNI_TARGET void quantise_row(const float* x, const quant::RowFormat& format,
                                     std::byte* to) {
  const int64_t K = format.K;
  const Int8Row row{to, padded(K)};
  auto* const values = reinterpret_cast<int8_t*>(to);
  auto* const offsets = reinterpret_cast<int32_t*>(to + row.width);
  auto* const scales = const_cast<float*>(row.scales());
  auto* const group_sums = const_cast<float*>(row.group_sums());
  const int64_t groups = format.num_groups();
  std::fill_n(group_sums, groups, 0.0f);
  const __m512i ones = _mm512_set1_epi8(1);
  for (int64_t k = 0; k < row.width; k += kStep) {
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
    // Divided by, never zero; a NaN in x is not a magnitude and must not vanish: see below.
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
    // A step with a NaN or an infinity gives NaN, as a product in floats would.
    const bool finite = not_numbers == 0 && magnitude <= std::numeric_limits<float>::max();
    scales[k / kStep] = finite ? scale : std::numeric_limits<float>::quiet_NaN();
    const __m512i stored = _mm512_load_si512(values + k);
    const __m512i lane_sums = _mm512_dpbusd_epi32(_mm512_setzero_si512(), ones, stored);
    _mm512_store_si512(offsets + k / 4,
                       _mm512_sub_epi32(_mm512_setzero_si512(), _mm512_slli_epi32(lane_sums, 7)));
    const __m256i low = _mm512_castsi512_si256(lane_sums);
    const __m256i high = _mm512_extracti64x4_epi64(lane_sums, 1);
    const int32_t sums[2] = {_mm512_reduce_add_epi32(_mm512_zextsi256_si512(low)),
                             _mm512_reduce_add_epi32(_mm512_zextsi256_si512(high))};
    for (int64_t half = 0; half < 2 && k + 32 * half < K; ++half) {
      group_sums[(k + 32 * half) / format.group_size] +=
          scales[k / kStep] * static_cast<float>(sums[half]);
    }
  }
}

void int8_dot(const Product& p, const Block& block) {
  int64_t column = block.column_begin;
  if (block.row_end - block.row_begin == 1) {  // registers for more columns
    for (; column + 4 <= block.column_end; column += 4) dot_tile<1, 4>(p, block.row_begin, column);
  }
  for (; column + 2 <= block.column_end; column += 2) {
    dot_rows<2>(p, block.row_begin, block.row_end, column);
  }
  if (column < block.column_end) dot_rows<1>(p, block.row_begin, block.row_end, column);
}

}  // namespace heddle::ops

#else  // not x86-64

namespace heddle::ops {

bool has_int8_products() { return false; }

void quantise_row(const float*, const quant::RowFormat&, std::byte*) {
  HEDDLE_CHECK(has_int8_products());
}

void int8_dot(const Product&, const Block&) { HEDDLE_CHECK(has_int8_products()); }

}  // namespace heddle::ops

#endif
