// SPDX-License-Identifier: Apache-2.0
#include "ops/gemm/packed_product.h"

#include <algorithm>

#include "core/check.h"
#include "ops/gemm/row_dot.h"
#include "quant/dequantise.h"

namespace heddle::ops {

using quant::kMaxPackedWidth;

void packed_row_dot(const Product& product, const Block& block) {
  HEDDLE_CHECK_LE(product.K, kMaxPackedWidth);
  alignas(64) float rows[kMaxPackedWidth];
  // As many columns as fit half of a second-level cache, whole tiles of row_dot's where possible.
  constexpr int64_t kMaxColumns = 16;
  const int64_t stride = (product.K + 15) / 16 * 16;
  const int64_t fit =
      std::clamp<int64_t>(kMaxPackedWidth / std::max<int64_t>(stride, 1), 1, kMaxColumns);
  const int64_t at_once = fit >= 4 ? fit / 4 * 4 : fit;
  for (int64_t column = block.column_begin; column < block.column_end; column += at_once) {
    const int64_t count = std::min(at_once, block.column_end - column);
    for (int64_t c = 0; c < count; ++c) {
      quant::dequantise_row(*product.packed, product.packed_row + column + c, 0, product.K,
                            rows + c * stride);
    }
    Product plain = product;
    plain.weight = rows;
    plain.weight_stride = stride;
    plain.weight_dtype = DType::kF32;
    plain.packed = nullptr;
    plain.y += column;
    if (plain.bias != nullptr) plain.bias += column;
    plain.N = count;
    row_dot(plain, {.row_begin = block.row_begin,
                    .row_end = block.row_end,
                    .column_begin = 0,
                    .column_end = count});
  }
}

}  // namespace heddle::ops
