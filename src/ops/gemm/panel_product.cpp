// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/panel_product.h"

#include <algorithm>

#include "core/check.h"
#include "ops/gemm/panel_driver.h"
#include "ops/simd/targets.h"
#include "quant/dequantise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "ops/gemm/panel_product.cpp"
#include <hwy/foreach_target.h>

#include "ops/simd/load-inl.h"
#include "ops/simd/transpose-inl.h"

HWY_BEFORE_NAMESPACE();

namespace heddle::ops::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
namespace simd = heddle::ops::simd::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using WordTag = hn::ScalableTag<uint32_t>;
using Words = hn::Vec<WordTag>;

constexpr int64_t kLanes = hn::MaxLanes(FloatTag());

// Loads a square of 32-bit words, one from each of kLanes weight rows, and transposes it: words[i]
// holds word i of every row. Rows beyond `num_rows` and words beyond `num_bytes` of a row become
// zero.
template <typename Weight>
HWY_INLINE void load_square(const Weight* from, int64_t stride, int64_t num_rows, int64_t num_bytes,
                            Words (&words)[kLanes]) {
  const WordTag d;
  if (HWY_TARGET != HWY_SCALAR && num_rows >= kLanes && num_bytes >= kLanes * 4) {
    HEDDLE_UNROLL
    for (int64_t r = 0; r < kLanes; ++r) {
      words[r] =
          hn::BitCast(d, hn::LoadU(FloatTag(), reinterpret_cast<const float*>(from + r * stride)));
    }
  } else {
    HWY_ALIGN uint32_t square[kLanes][kLanes] = {};
    const int64_t rows = std::min(num_rows, kLanes);
    const auto bytes = static_cast<size_t>(std::min(num_bytes, kLanes * 4));
    for (int64_t r = 0; r < rows; ++r) {
      ops::simd::copy_unaligned(square[r], from + r * stride, bytes);
    }
    HEDDLE_UNROLL
    for (int64_t r = 0; r < kLanes; ++r) words[r] = hn::Load(d, square[r]);
  }
  simd::Transpose(d, words);
}

// The low (first along K) or high half of each word, converted to float32.
HWY_INLINE hn::Vec<FloatTag> low_float(const Bf16*, Words words) {
  return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(words));
}

HWY_INLINE hn::Vec<FloatTag> high_float(const Bf16*, Words words) {
  return hn::BitCast(FloatTag(), hn::And(words, hn::Set(WordTag(), 0xffff0000u)));
}

HWY_INLINE hn::Vec<FloatTag> half_float(hn::Vec<hn::RebindToSigned<WordTag>> small_words) {
  const hn::Rebind<uint16_t, WordTag> d16;
  const hn::Rebind<hwy::float16_t, WordTag> df16;
  return hn::PromoteTo(FloatTag(), hn::BitCast(df16, hn::DemoteTo(d16, small_words)));
}

HWY_INLINE hn::Vec<FloatTag> low_float(const F16*, Words words) {
  const hn::RebindToSigned<WordTag> di;
  return half_float(hn::BitCast(di, hn::And(words, hn::Set(WordTag(), 0xffffu))));
}

HWY_INLINE hn::Vec<FloatTag> high_float(const F16*, Words words) {
  const hn::RebindToSigned<WordTag> di;
  return half_float(hn::BitCast(di, hn::ShiftRight<16>(words)));
}

template <typename Weight>
struct FloatPanel {
  static constexpr int kVectors = HWY_TARGET == HWY_AVX2 ? 2 : 4;  // AVX2 has only 16 registers
  static constexpr int64_t kMaxWidth = kVectors * kLanes;
  // with 64 columns 64 KB, which fit into a part of any second-level cache.
  static constexpr int64_t kDepth = 256;
  static constexpr int64_t kPanelBytes = kDepth * kMaxWidth * 4;

  static int64_t lanes() { return kLanes; }

  // Iterations of the inner loop of a tile.
  static int64_t steps(int64_t depth) { return depth; }

  static void pack(const Product& p, int64_t column, int64_t num_columns, int64_t k, int64_t depth,
                   int64_t width, void* panel) {
    const FloatTag d;
    constexpr int64_t kInWord = 4 / static_cast<int64_t>(sizeof(Weight));
    auto* out = static_cast<float*>(panel);
    for (int64_t c = 0; c < width; c += kLanes) {
      const Weight* rows =
          static_cast<const Weight*>(p.weight) + (column + c) * p.weight_stride + k;
      for (int64_t i = 0; i < depth; i += kLanes * kInWord) {
        Words words[kLanes];
        const int64_t bytes_left = (depth - i) * static_cast<int64_t>(sizeof(Weight));
        if (c >= num_columns) {
          std::fill_n(words, kLanes, hn::Zero(WordTag()));
        } else {
          load_square(rows + i, p.weight_stride, num_columns - c, bytes_left, words);
        }
        // Rows beyond the depth may be written but are never read: the panel has room for whole
        // squares.
        float* to = out + i * width + c;
        HEDDLE_UNROLL
        for (int64_t w = 0; w < kLanes; ++w) {
          if constexpr (kInWord == 1) {
            hn::Store(hn::BitCast(d, words[w]), d, to + w * width);
          } else {
            hn::Store(low_float(static_cast<const Weight*>(nullptr), words[w]), d,
                      to + 2 * w * width);
            hn::Store(high_float(static_cast<const Weight*>(nullptr), words[w]), d,
                      to + (2 * w + 1) * width);
          }
        }
      }
    }
  }

  template <int kRows, int kWide>
  static HWY_INLINE void multiply_step(const float* const (&x)[kRows], int64_t k,
                                       const float* panel,
                                       hn::Vec<FloatTag> (&sums)[kRows][kWide]) {
    const FloatTag d;
    hn::Vec<FloatTag> weights[kWide];
    HEDDLE_UNROLL
    for (int v = 0; v < kWide; ++v) weights[v] = hn::Load(d, panel + v * kLanes);
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const auto factor = hn::Set(d, x[r][k]);
      HEDDLE_UNROLL
      for (int v = 0; v < kWide; ++v) sums[r][v] = hn::MulAdd(factor, weights[v], sums[r][v]);
    }
  }

  template <int kRows, int kWide>
  static HWY_NOINLINE void multiply(const PanelTile& tile) {
    const FloatTag d;
    const float* x[kRows];
    hn::Vec<FloatTag> sums[kRows][kWide];
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const Product& p = tile.product;
      x[r] = p.x + p.x_row(tile.row + r) * p.x_stride + tile.k;
      HEDDLE_UNROLL
      for (int v = 0; v < kWide; ++v) {
        sums[r][v] = hn::LoadU(d, tile.init + r * tile.init_stride + v * kLanes);
      }
    }
    const auto* panel = static_cast<const float*>(tile.panel);
    int64_t k = 0;
    for (; k + NextPanel::kLines <= tile.depth; k += NextPanel::kLines) {
      const uintptr_t ahead = tile.next.next();
      for (int64_t line = 0; line < NextPanel::kLines; ++line, panel += kWide * kLanes) {
        simd::PrefetchLine(ahead + static_cast<uintptr_t>(64 * line));
        multiply_step<kRows, kWide>(x, k + line, panel, sums);
      }
    }
    for (; k < tile.depth; ++k, panel += kWide * kLanes)
      multiply_step<kRows, kWide>(x, k, panel, sums);
    HEDDLE_UNROLL
    for (int r = 0; r < kRows; ++r) {
      HEDDLE_UNROLL
      for (int v = 0; v < kWide; ++v) {
        hn::StoreU(sums[r][v], d, tile.y + r * tile.y_stride + v * kLanes);
      }
    }
  }

  static void tile(int64_t rows, int64_t vectors, const PanelTile& tile) {
    for_tile_shape<kVectors>(rows, vectors,
                             [&]<int kRows, int kWide>() { multiply<kRows, kWide>(tile); });
  }
};

// A panel of quantised weights, which are dequantised a slice of K at a time.
struct PackedPanel : FloatPanel<float> {
  static void pack(const Product& p, int64_t column, int64_t num_columns, int64_t k, int64_t depth,
                   int64_t width, void* panel) {
    HWY_ALIGN float slice[kMaxWidth * kDepth];
    for (int64_t c = 0; c < num_columns; ++c) {
      quant::dequantise_row(*p.packed, p.packed_row + column + c, k, depth, slice + c * kDepth);
    }
    Product plain = p;
    plain.weight = slice;
    plain.weight_stride = kDepth;
    FloatPanel<float>::pack(plain, 0, num_columns, 0, depth, width, panel);
  }
};

void panel_block(const Product& product, const Block& block) {
  switch (product.weight_dtype) {
    case DType::kF32:
      return run_panels<FloatPanel<float>>(product, block);
    case DType::kBf16:
      return run_panels<FloatPanel<Bf16>>(product, block);
    case DType::kF16:
      return run_panels<FloatPanel<F16>>(product, block);
    case DType::kPacked:
      return run_panels<PackedPanel>(product, block);
    default:
      HEDDLE_CHECK(false && "the contract admits f32, bf16, f16 and quantised weights only");
  }
}

// Fewest rows for a panel, measured with weights from memory. It depends on K, because with a short
// K reducing the lanes of dot products takes a large share, and on AVX2, which has few registers
// for tiles of dot products.
int64_t rows_to_pay(int64_t K) {
  constexpr int64_t kShortK = 192;
  if (HWY_TARGET == HWY_AVX3) return K <= kShortK ? 6 : 16;
  return K <= kShortK ? 4 : 7;
}

void pack_pair_panel(const Product& p, int64_t column, int64_t num_columns, int64_t k,
                     int64_t depth, int64_t width, uint32_t* panel) {
  const WordTag d;
  for (int64_t c = 0; c < width; c += kLanes) {
    const Bf16* rows = static_cast<const Bf16*>(p.weight) + (column + c) * p.weight_stride + k;
    for (int64_t i = 0; i < depth; i += 2 * kLanes) {
      Words words[kLanes];
      if (c >= num_columns) {
        std::fill_n(words, kLanes, hn::Zero(d));
      } else {
        load_square(rows + i, p.weight_stride, num_columns - c, (depth - i) * 2, words);
      }
      HEDDLE_UNROLL
      for (int64_t w = 0; w < kLanes; ++w) hn::Store(words[w], d, panel + (i / 2 + w) * width + c);
    }
  }
}

}  // namespace heddle::ops::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace heddle::ops {

HWY_EXPORT(panel_block);
HWY_EXPORT(rows_to_pay);
HWY_EXPORT(pack_pair_panel);

void panel_product(const Product& product, const Block& block) {
  HWY_DYNAMIC_DISPATCH(panel_block)(product, block);
}

int64_t panel_product_pays_from(int64_t K) { return HWY_DYNAMIC_DISPATCH(rows_to_pay)(K); }

void pack_pairs(const Product& product, int64_t column, int64_t num_columns, int64_t k,
                int64_t depth, int64_t width, uint32_t* panel) {
  HWY_DYNAMIC_DISPATCH(pack_pair_panel)(product, column, num_columns, k, depth, width, panel);
}

}  // namespace heddle::ops

#endif  // HWY_ONCE
