// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/fp8_bf16_product.h"

#include "core/check.h"
#include "ops/gemm/bf16_product.h"

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
// False warnings about gcc's own intrinsics, gcc bug 105593.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <algorithm>
#include <array>
#include <bit>

#include <immintrin.h>

#include "ops/gemm/avx512_tile.h"
#include "ops/simd/targets.h"
#include "quant/dequantise.h"
#include "quant/small_floats.h"

#define HEDDLE_FP8_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16,avx512vbmi")))
#define HEDDLE_FP8_INLINE HEDDLE_FP8_TARGET __attribute__((always_inline)) inline

namespace heddle::ops {

namespace {

constexpr int64_t kProductStep = 64;  // codes in a vector

// The upper and lower bytes of the bf16 numbers for codes 0 to 127.
struct Tables {
  alignas(64) std::array<uint8_t, 128> high;
  alignas(64) std::array<uint8_t, 128> low;

  Tables() {
    for (size_t code = 0; code < 128; ++code) {
      const auto bits = std::bit_cast<uint32_t>(quant::e4m3_to_float(static_cast<uint8_t>(code)));
      high[code] = static_cast<uint8_t>(bits >> 24);
      low[code] = static_cast<uint8_t>(bits >> 16);
    }
  }
};

const Tables& tables() {
  static const Tables kTables;
  return kTables;
}

HEDDLE_FP8_INLINE __m512 dot_pairs(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// kRows rows of x times kColumns rows of the weight. Weight rows are read one after the other, in
// memory order.
template <int kRows, int kColumns>
HEDDLE_FP8_TARGET void dot_tile(const Product& p, const Tables& table, int64_t row,
                                int64_t column) {
  const quant::PackedRows& weights = *p.packed;
  const int64_t group_size = weights.format.group_size;
  const uint16_t* x[kRows];
  __m512 totals[kRows][kColumns];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) x[r] = p.x_bf16 + p.x_row(row + r) * p.x_bf16_stride;
  const __m512i high_first = _mm512_load_si512(table.high.data());
  const __m512i high_second = _mm512_load_si512(table.high.data() + 64);
  const __m512i low_first = _mm512_load_si512(table.low.data());
  const __m512i low_second = _mm512_load_si512(table.low.data() + 64);
  const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));

  for (int c = 0; c < kColumns; ++c) {
    const int64_t weight_row = p.packed_row + column + c;
    const uint8_t* const w = weights.row_codes(weight_row);
    __m512 total[kRows];
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) total[r] = _mm512_setzero_ps();
    for (int64_t begin = 0, group = 0; begin < p.K; begin += group_size, ++group) {
      const int64_t end = std::min(begin + group_size, p.K);
      __m512 sums[2][kRows];
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) sums[0][r] = sums[1][r] = _mm512_setzero_ps();
      for (int64_t k = begin; k < end; k += kProductStep) {
        prefetch_ahead(w + k);
        const __m512i codes = _mm512_load_si512(w + k);
        // Tables have no signs. This ternary function adds them: the first operand | (codes & top
        // bits).
        constexpr int kFirstOrBoth = 0xf8;
        const __m512i high = _mm512_ternarylogic_epi64(
            _mm512_permutex2var_epi8(high_first, codes, high_second), codes, sign, kFirstOrBoth);
        const __m512i low = _mm512_permutex2var_epi8(low_first, codes, low_second);
        const __m512i first = _mm512_unpacklo_epi8(low, high);
        const __m512i second = _mm512_unpackhi_epi8(low, high);
        HEDDLE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          sums[0][r] = dot_pairs(sums[0][r], first, _mm512_loadu_si512(x[r] + k));
          sums[1][r] =
              dot_pairs(sums[1][r], second, _mm512_loadu_si512(x[r] + k + kProductStep / 2));
        }
      }
      const __m512 scale = _mm512_set1_ps(quant::scale_of(weights, weight_row, group));
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) {
        total[r] = _mm512_fmadd_ps(_mm512_add_ps(sums[0][r], sums[1][r]), scale, total[r]);
      }
    }
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) totals[r][c] = total[r];
  }
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) store_sums(p, row + r, column, totals[r]);
}

template <int kColumns>
void dot_rows(const Product& p, const Tables& table, const Block& block, int64_t column) {
  int64_t row = block.row_begin;
  for (; row + 4 <= block.row_end; row += 4) dot_tile<4, kColumns>(p, table, row, column);
  switch (block.row_end - row) {
    case 1:
      return dot_tile<1, kColumns>(p, table, row, column);
    case 2:
      return dot_tile<2, kColumns>(p, table, row, column);
    case 3:
      return dot_tile<3, kColumns>(p, table, row, column);
    default:
      return;
  }
}

bool has_instructions() {
  static const bool kPresent = has_bf16_products() && __builtin_cpu_supports("avx512vbmi");
  return kPresent;
}

}  // namespace

bool fp8_dot_bf16_takes(const quant::PackedRows& rows) {
  const quant::RowFormat& format = rows.format;
  return rows.may_round_x && format.code == quant::Code::kE4M3 && format.group_index == nullptr &&
         (format.num_groups() == 1 || format.group_size % kProductStep == 0) && has_instructions();
}

HEDDLE_FP8_TARGET void round_to_bf16_for_fp8(const float* x, int64_t K, uint16_t* to) {
  round_to_bf16(x, K, to);
  // Interleaving the bytes of 64 numbers puts columns 0..7, 16..23, 32..39 and 48..55 into one
  // vector and the other columns into the other; x is stored in that order.
  for (int64_t k = 0; k < bf16_row_width(K); k += kProductStep) {
    const __m512i a = _mm512_loadu_si512(to + k);
    const __m512i b = _mm512_loadu_si512(to + k + kProductStep / 2);
    _mm512_storeu_si512(to + k, _mm512_shuffle_i64x2(a, b, 0x88));
    _mm512_storeu_si512(to + k + kProductStep / 2, _mm512_shuffle_i64x2(a, b, 0xdd));
  }
}

void fp8_dot_bf16(const Product& p, const Block& block) {
  const Tables& table = tables();
  int64_t column = block.column_begin;
  for (; column + 4 <= block.column_end; column += 4) dot_rows<4>(p, table, block, column);
  for (; column < block.column_end; ++column) dot_rows<1>(p, table, block, column);
}

}  // namespace heddle::ops

#else  // not x86-64

namespace heddle::ops {

bool fp8_dot_bf16_takes(const quant::PackedRows&) { return false; }

void round_to_bf16_for_fp8(const float*, int64_t, uint16_t*) { HEDDLE_CHECK(has_bf16_products()); }

void fp8_dot_bf16(const Product&, const Block&) { HEDDLE_CHECK(has_bf16_products()); }

}  // namespace heddle::ops

#endif
