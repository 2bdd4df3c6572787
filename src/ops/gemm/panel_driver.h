// SPDX-License-Identifier: Apache-2.0
// The loops around a panel kernel: columns of y in panels, K in slices, rows of y in tiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/gemm/product.h"

namespace heddle::ops {

// Most rows of a tile: 6 x 4 vectors of sums occupy 24 of AVX-512's 32 registers.
inline constexpr int64_t kPanelTileRows = 6;

// Prefetch schedule for the weights that the next panel will be packed from: while the tiles of the
// current panel are computed, each call of next() returns 512 bytes to prefetch, spread evenly over
// the calls.
class NextPanel {
 public:
  static constexpr int64_t kBytes = 512;
  static constexpr int64_t kLines = kBytes / 64;

  NextPanel() = default;

  // The weights to prefetch: `num_rows` rows from `begin` on, `row_bytes` bytes of each,
  // `stride_bytes` apart.
  NextPanel(const void* begin, int64_t num_rows, int64_t row_bytes, int64_t stride_bytes)
      : row_(reinterpret_cast<uintptr_t>(begin)),
        row_bytes_(row_bytes),
        stride_bytes_(static_cast<uintptr_t>(stride_bytes)),
        pieces_(num_rows * ((row_bytes + kBytes - 1) / kBytes)),
        pieces_left_(pieces_) {}

  // Sets how many times next() will be called.
  void set_calls(int64_t calls) { calls_ = calls; }

  // The address of the next 512 bytes to prefetch, or an address that is in the cache already if
  // none are due.
  uintptr_t next() {
    due_ += pieces_;
    if (due_ < calls_ || pieces_left_ == 0) return reinterpret_cast<uintptr_t>(this);
    due_ -= calls_;
    --pieces_left_;
    const uintptr_t here = row_ + static_cast<uintptr_t>(offset_);
    offset_ += kBytes;
    if (offset_ >= row_bytes_) {
      offset_ = 0;
      row_ += stride_bytes_;
    }
    return here;
  }

 private:
  uintptr_t row_ = 0;
  int64_t row_bytes_ = 0;
  int64_t offset_ = 0;
  uintptr_t stride_bytes_ = 0;
  int64_t pieces_ = 0;
  int64_t pieces_left_ = 0;
  int64_t calls_ = 1;
  int64_t due_ = 0;
};

// Arguments of one tile: y = init + x[row.., k..] * panel, for `rows` rows and `vectors` vectors of
// columns.
struct PanelTile {
  const Product& product;
  int64_t row = 0;
  int64_t k = 0;
  int64_t depth = 0;
  const void* panel = nullptr;
  const float* init = nullptr;  // [rows, vectors * lanes], rows init_stride apart
  int64_t init_stride = 0;
  float* y = nullptr;  // [rows, vectors * lanes], rows y_stride apart
  int64_t y_stride = 0;
  NextPanel& next;
};

// The weights of the panel that is packed next: those of the next slice of K, after `k_end`, or of
// the next columns.
inline NextPanel next_panel(const Product& p, const Block& block, int64_t column,
                            int64_t num_columns, int64_t k_end, int64_t depth) {
  // packed weights have few bytes, and the hardware prefetches them
  if (p.packed != nullptr) return {};
  int64_t k = k_end;
  if (k >= p.K) {
    column += num_columns;
    k = 0;
  }
  const int64_t columns_left = std::min(num_columns, block.column_end - column);
  if (columns_left <= 0) return {};
  const auto* begin = static_cast<const std::byte*>(p.weight) +
                      bytes_of(p.weight_dtype, column * p.weight_stride + k);
  return {begin, columns_left, bytes_of(p.weight_dtype, std::min(depth, p.K - k)),
          bytes_of(p.weight_dtype, p.weight_stride)};
}

// Computes a block of y panel by panel. Kernel must define kDepth (K of a slice), kPanelBytes,
// kVectors (most vectors of a panel's width), kMaxWidth, lanes(), steps(depth), pack(product,
// column, num_columns, k, depth, width, panel) and tile(rows, vectors, PanelTile).
template <class Kernel>
void run_panels(const Product& p, const Block& block) {
  alignas(64) unsigned char panel[Kernel::kPanelBytes];
  alignas(64) float edge[kPanelTileRows * Kernel::kMaxWidth];
  alignas(64) float bias[Kernel::kMaxWidth];
  const int64_t lanes = Kernel::lanes();
  const int64_t rows = block.row_end - block.row_begin;
  const int64_t num_tiles = (rows + kPanelTileRows - 1) / kPanelTileRows;

  for (int64_t column = block.column_begin; column < block.column_end;) {
    const int64_t num_columns = std::min(Kernel::kVectors * lanes, block.column_end - column);
    int64_t vectors = (num_columns + lanes - 1) / lanes;
    if (vectors == 3) vectors = 4;  // there is no kernel for three vectors
    const int64_t width = vectors * lanes;
    const bool whole = num_columns == width;
    std::fill_n(bias, width, 0.0f);
    if (p.bias != nullptr) std::copy_n(p.bias + column, num_columns, bias);

    for (int64_t k = 0; k < p.K; k += Kernel::kDepth) {
      const int64_t depth = std::min(Kernel::kDepth, p.K - k);
      Kernel::pack(p, column, num_columns, k, depth, width, panel);
      NextPanel next = next_panel(p, block, column, num_columns, k + depth, Kernel::kDepth);
      next.set_calls(num_tiles * Kernel::steps(depth) / NextPanel::kLines);
      // numbers of rows of the tiles differ by at most one
      for (int64_t i = 0; i < num_tiles; ++i) {
        const int64_t row = block.row_begin + i * rows / num_tiles;
        const int64_t tile_rows = block.row_begin + (i + 1) * rows / num_tiles - row;
        float* y = p.y + row * p.y_stride + column;
        PanelTile tile{.product = p,
                       .row = row,
                       .k = k,
                       .depth = depth,
                       .panel = panel,
                       .init = k == 0 ? bias : y,
                       .init_stride = k == 0 ? 0 : p.y_stride,
                       .y = y,
                       .y_stride = p.y_stride,
                       .next = next};
        if (!whole) {  // computes into a buffer, so that nothing after column_end is touched
          if (k != 0) {
            for (int64_t r = 0; r < tile_rows; ++r) {
              std::copy_n(y + r * p.y_stride, num_columns, edge + r * width);
            }
            tile.init = edge;
            tile.init_stride = width;
          }
          tile.y = edge;
          tile.y_stride = width;
        }
        Kernel::tile(tile_rows, vectors, tile);
        if (!whole) {
          for (int64_t r = 0; r < tile_rows; ++r) {
            std::copy_n(edge + r * width, num_columns, y + r * p.y_stride);
          }
        }
      }
    }
    column += num_columns;
  }
}

// Calls function.template operator()<rows, vectors>() for rows in 1..6 and vectors in {1, 2, 4}.
template <int kMaxVectors, class Function>
void for_tile_shape(int64_t rows, int64_t vectors, const Function& function) {
  const auto with_vectors = [&]<int kRows>() {
    if (vectors == 1) return function.template operator()<kRows, 1>();
    if (kMaxVectors == 2 || vectors == 2) return function.template operator()<kRows, 2>();
    if constexpr (kMaxVectors == 4) return function.template operator()<kRows, 4>();
  };
  switch (rows) {
    case 1:
      return with_vectors.template operator()<1>();
    case 2:
      return with_vectors.template operator()<2>();
    case 3:
      return with_vectors.template operator()<3>();
    case 4:
      return with_vectors.template operator()<4>();
    case 5:
      return with_vectors.template operator()<5>();
    default:
      return with_vectors.template operator()<6>();
  }
}

}  // namespace heddle::ops
