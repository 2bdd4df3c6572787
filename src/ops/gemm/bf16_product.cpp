// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/bf16_product.h"

#include "core/check.h"
#include "ops/simd/this_cpu.h"

#if defined(__x86_64__)

#if defined(__GNUC__) && !defined(__clang__)
// False warnings about gcc's own intrinsics, gcc bug 105593.
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <algorithm>

#include <immintrin.h>

#include "ops/gemm/avx512_tile.h"
#include "ops/gemm/panel_driver.h"
#include "ops/gemm/panel_product.h"
#include "ops/simd/targets.h"

#define HEDDLE_BF16_TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#define HEDDLE_BF16_INLINE HEDDLE_BF16_TARGET __attribute__((always_inline)) inline

namespace heddle::ops {

namespace {

constexpr int64_t kStep = 64;  // elements of K in two vectors
constexpr int kTileRows = 3;   // 3 x 4 tiles with two sums each occupy 24 of 32 registers
constexpr int kTileColumns = 4;

HEDDLE_BF16_INLINE __m512 dot_pairs(__m512 sum, __m512i a, __m512i b) {
  return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(a), reinterpret_cast<__m512bh>(b));
}

// Few rows of x times kColumns rows of the weight. Weight rows are read one after the other, in
// memory order: reading several at a time would cost a quarter of the bandwidth. Sums are those of
// dot_tile().
template <int kRows, int kColumns>
HEDDLE_BF16_TARGET void stream_tile(const Product& p, int64_t row, int64_t column) {
  const uint16_t* x[kRows];
  __m512 totals[kRows][kColumns];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) x[r] = p.x_bf16 + p.x_row(row + r) * p.x_bf16_stride;
  for (int c = 0; c < kColumns; ++c) {
    const uint16_t* const w =
        static_cast<const uint16_t*>(p.weight) + (column + c) * p.weight_stride;
    __m512 sums[2][kRows];
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) sums[0][r] = sums[1][r] = _mm512_setzero_ps();
    int64_t k = 0;
    for (; k + kStep <= p.K; k += kStep) {
      HEDDLE_UNROLL
      for (int half = 0; half < 2; ++half) {
        prefetch_ahead(w + k + 32 * half);
        const __m512i weights = _mm512_loadu_si512(w + k + 32 * half);
        HEDDLE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          sums[half][r] =
              dot_pairs(sums[half][r], _mm512_loadu_si512(x[r] + k + 32 * half), weights);
        }
      }
    }
    if (k < p.K) {
      HEDDLE_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int64_t count = std::clamp<int64_t>(p.K - k - 32 * half, 0, 32);
        const auto mask = static_cast<__mmask32>((uint64_t{1} << count) - 1);
        const __m512i weights = _mm512_maskz_loadu_epi16(mask, w + k + 32 * half);
        HEDDLE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          sums[half][r] =
              dot_pairs(sums[half][r], _mm512_loadu_si512(x[r] + k + 32 * half), weights);
        }
      }
    }
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) totals[r][c] = _mm512_add_ps(sums[0][r], sums[1][r]);
  }
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) store_sums(p, row + r, column, totals[r]);
}

// Computes tile number `pass` of `num_passes` tiles with the same columns. Together these tiles
// prefetch the next columns, as in row_dot.cpp.
template <int kRows, int kColumns>
HEDDLE_BF16_TARGET void dot_tile(const Product& p, int64_t row, int64_t column, int64_t pass,
                                 int64_t num_passes) {
  const uint16_t* x[kRows];
  const uint16_t* w[kColumns];
  __m512 sums[2][kRows][kColumns];
  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) x[r] = p.x_bf16 + p.x_row(row + r) * p.x_bf16_stride;
  HEDDLE_UNROLL
  for (int c = 0; c < kColumns; ++c) {
    w[c] = static_cast<const uint16_t*>(p.weight) + (column + c) * p.weight_stride;
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) sums[0][r][c] = sums[1][r][c] = _mm512_setzero_ps();
  }
  constexpr int64_t kLines = 2 * kColumns;  // 64-byte lines in a step
  const int64_t first_line = kLines * pass / num_passes;
  const int64_t num_lines = kLines * (pass + 1) / num_passes - first_line;
  uintptr_t ahead = reinterpret_cast<uintptr_t>(w[0] + kColumns * p.weight_stride) +
                    static_cast<uintptr_t>(64 * first_line * (p.K / kStep));

  for (int64_t k = 0; k < p.K; k += kStep) {
    for (int64_t line = 0; line < num_lines; ++line, ahead += 64) {
      _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T0);
    }
    const int64_t left = p.K - k;
    HEDDLE_UNROLL
    for (int half = 0; half < 2; ++half) {
      const int64_t count = std::clamp<int64_t>(left - 32 * half, 0, 32);
      const auto mask = static_cast<__mmask32>((uint64_t{1} << count) - 1);
      __m512i rows[kRows];
      HEDDLE_UNROLL
      for (int r = 0; r < kRows; ++r) rows[r] = _mm512_loadu_si512(x[r] + k + 32 * half);
      HEDDLE_UNROLL
      for (int c = 0; c < kColumns; ++c) {
        const __m512i weights = left >= kStep
                                    ? _mm512_loadu_si512(w[c] + k + 32 * half)
                                    : _mm512_maskz_loadu_epi16(mask, w[c] + k + 32 * half);
        HEDDLE_UNROLL
        for (int r = 0; r < kRows; ++r) {
          sums[half][r][c] = dot_pairs(sums[half][r][c], rows[r], weights);
        }
      }
    }
  }

  HEDDLE_UNROLL
  for (int r = 0; r < kRows; ++r) {
    HEDDLE_UNROLL
    for (int c = 0; c < kColumns; ++c) {
      sums[0][r][c] = _mm512_add_ps(sums[0][r][c], sums[1][r][c]);
    }
    store_sums(p, row + r, column, sums[0][r]);
  }
}

// Most rows for which memory bandwidth limits a product. With more rows, tiles in which several
// columns share loads are faster.
constexpr int64_t kStreamedRows = 4;

template <int kColumns>
void stream_rows(const Product& p, int64_t begin, int64_t end, int64_t column) {
  switch (end - begin) {
    case 1:
      return stream_tile<1, kColumns>(p, begin, column);
    case 2:
      return stream_tile<2, kColumns>(p, begin, column);
    case 3:
      return stream_tile<3, kColumns>(p, begin, column);
    case 4:
      return stream_tile<4, kColumns>(p, begin, column);
    default:
      return;
  }
}

template <int kColumns>
void dot_rows(const Product& p, int64_t begin, int64_t end, int64_t column) {
  if (end - begin <= kStreamedRows) return stream_rows<kColumns>(p, begin, end, column);
  const int64_t odd_rows = (end - begin) % kTileRows;
  const int64_t num_passes = (end - begin + kTileRows - 1) / kTileRows;
  if (odd_rows == 1) dot_tile<1, kColumns>(p, begin, column, 0, num_passes);
  if (odd_rows == 2) dot_tile<2, kColumns>(p, begin, column, 0, num_passes);
  int64_t pass = odd_rows == 0 ? 0 : 1;
  for (int64_t row = begin + odd_rows; row < end; row += kTileRows, ++pass) {
    dot_tile<kTileRows, kColumns>(p, row, column, pass, num_passes);
  }
}

struct PairPanel {
  static constexpr int kVectors = 4;
  static constexpr int64_t kMaxWidth = kPanelColumns;
  static constexpr int64_t kDepth = 512;  // K of a slice: 256 pairs of 64 columns are 64 KB
  static constexpr int64_t kPanelBytes = kDepth * kMaxWidth * 2;

  static int64_t lanes() { return 16; }

  // Iterations of the inner loop of a tile.
  static int64_t steps(int64_t depth) { return (depth + 1) / 2; }

  static void pack(const Product& p, int64_t column, int64_t num_columns, int64_t k, int64_t depth,
                   int64_t width, void* panel) {
    pack_pairs(p, column, num_columns, k, depth, width, static_cast<uint32_t*>(panel));
  }

  template <int kRows, int kWide>
  HEDDLE_BF16_INLINE static void multiply_step(const int32_t* const (&x)[kRows], int64_t pair,
                                               const uint32_t* panel,
                                               __m512 (&sums)[kRows][kWide]) {
    __m512i weights[kWide];
    HEDDLE_UNROLL
    for (int v = 0; v < kWide; ++v) weights[v] = _mm512_load_si512(panel + v * 16);
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const __m512i factor = _mm512_set1_epi32(x[r][pair]);
      HEDDLE_UNROLL
      for (int v = 0; v < kWide; ++v) sums[r][v] = dot_pairs(sums[r][v], factor, weights[v]);
    }
  }

  template <int kRows, int kWide>
  HEDDLE_BF16_TARGET static void multiply(const PanelTile& tile) {
    const Product& p = tile.product;
    const int32_t* x[kRows];  // pairs of bf16: rows at even offsets, 64-byte aligned
    __m512 sums[kRows][kWide];
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      x[r] = reinterpret_cast<const int32_t*>(p.x_bf16 + p.x_row(tile.row + r) * p.x_bf16_stride +
                                              tile.k);
      HEDDLE_UNROLL
      for (int v = 0; v < kWide; ++v) {
        sums[r][v] = _mm512_loadu_ps(tile.init + r * tile.init_stride + v * 16);
      }
    }
    const auto* panel = static_cast<const uint32_t*>(tile.panel);
    const int64_t pairs = (tile.depth + 1) / 2;
    int64_t i = 0;
    for (; i + NextPanel::kLines <= pairs; i += NextPanel::kLines) {
      const uintptr_t ahead = tile.next.next();
      for (int64_t line = 0; line < NextPanel::kLines; ++line, panel += kWide * 16) {
        _mm_prefetch(reinterpret_cast<const char*>(ahead) + 64 * line, _MM_HINT_T0);
        multiply_step<kRows, kWide>(x, i + line, panel, sums);
      }
    }
    for (; i < pairs; ++i, panel += kWide * 16) multiply_step<kRows, kWide>(x, i, panel, sums);
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      HEDDLE_UNROLL
      for (int v = 0; v < kWide; ++v) {
        _mm512_storeu_ps(tile.y + r * tile.y_stride + v * 16, sums[r][v]);
      }
    }
  }

  static void tile(int64_t rows, int64_t vectors, const PanelTile& tile) {
    for_tile_shape<kVectors>(rows, vectors,
                             [&]<int kRows, int kWide>() { multiply<kRows, kWide>(tile); });
  }
};

}  // namespace

bool has_bf16_products() {
  static const bool present =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bf16");
  return present;
}

HEDDLE_BF16_TARGET void round_to_bf16(const float* x, int64_t K, uint16_t* to) {
  const int64_t width = bf16_row_width(K);
  for (int64_t k = 0; k < width; k += 16) {
    const int64_t count = std::clamp<int64_t>(K - k, 0, 16);
    const auto mask = static_cast<__mmask16>((uint32_t{1} << count) - 1);
    const auto rounded = _mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, x + k));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + k), reinterpret_cast<__m256i>(rounded));
  }
}

void row_dot_bf16(const Product& p, const Block& block) {
  // Rows of x that stay in the second-level cache while all columns are computed with them.
  const int64_t rows_at_once = std::max<int64_t>(128 * 1024 / bf16_row_width(p.K), 6) / 6 * 6;
  for (int64_t begin = block.row_begin; begin < block.row_end; begin += rows_at_once) {
    const int64_t end = std::min(begin + rows_at_once, block.row_end);
    int64_t column = block.column_begin;
    for (; column + kTileColumns <= block.column_end; column += kTileColumns) {
      dot_rows<kTileColumns>(p, begin, end, column);
    }
    for (; column < block.column_end; ++column) dot_rows<1>(p, begin, end, column);
  }
}

void panel_product_bf16(const Product& product, const Block& block) {
  run_panels<PairPanel>(product, block);
}

HEDDLE_BF16_TARGET double bf16_dot_loop(int64_t rounds) {
  constexpr int kChains = 12;
  const __m512i ones = _mm512_set1_epi16(0x3f80);
  __m512 sums[kChains];
  HEDDLE_UNROLL
  for (int i = 0; i < kChains; ++i)
    sums[i] = _mm512_set1_ps(static_cast<float>(i));  // start values that differ between vectors
  for (int64_t round = 0; round < rounds; ++round) {
    HEDDLE_UNROLL
    for (int i = 0; i < kChains; ++i) sums[i] = dot_pairs(sums[i], ones, ones);
  }
  __m512 total = _mm512_setzero_ps();
  HEDDLE_UNROLL
  for (int i = 0; i < kChains; ++i) total = _mm512_add_ps(total, sums[i]);
  const volatile float sink = _mm512_reduce_add_ps(total);
  (void)sink;
  return static_cast<double>(rounds) * kChains * 64.0;
}

}  // namespace heddle::ops

#else  // not x86-64

namespace heddle::ops {

bool has_bf16_products() { return false; }

void round_to_bf16(const float*, int64_t, uint16_t*) { HEDDLE_CHECK(has_bf16_products()); }

void row_dot_bf16(const Product&, const Block&) { HEDDLE_CHECK(has_bf16_products()); }

void panel_product_bf16(const Product&, const Block&) { HEDDLE_CHECK(has_bf16_products()); }

double bf16_dot_loop(int64_t) { return 0.0; }

}  // namespace heddle::ops

#endif

namespace heddle::ops {

bool bf16_products_pay() {
  // On the CPUs we know, one of the rates is twice the other: measurement noise does not exceed the
  // middle.
  return peak_bf16_gflops() > 1.2 * peak_float_gflops();
}

}  // namespace heddle::ops
