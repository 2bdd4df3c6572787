// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/drawn_codes.h"

#include <bit>
#include <cstring>

#include "core/check.h"
#include "core/dtype.h"

namespace heddle::checkpoint {

DrawnScale drawn_scale(const quant::RowFormat& format, const DrawnWeight& weight) {
  HEDDLE_CHECK(weight.mean == 0);
  const float scale = weight.deviation / kDeviationOfBell * static_cast<float>(kMostOfBell) /
                      most_of_codes(format.code);
  DrawnScale drawn{.zero = format.code == quant::Code::kU4 ? uint8_t{8} : uint8_t{128}};
  switch (format.scale) {
    case quant::ScaleType::kF32:
      drawn.bits = std::bit_cast<uint32_t>(scale);
      break;
    case quant::ScaleType::kBf16:
      drawn.bits = to_bf16(scale).bits;
      drawn.num_bytes = 2;
      break;
    case quant::ScaleType::kF16:
      drawn.bits = to_f16(scale).bits;
      drawn.num_bytes = 2;
      break;
    case quant::ScaleType::kE8M0:
      drawn.bits = static_cast<uint32_t>(127 + static_cast<int>(std::lround(std::log2(scale))));
      drawn.num_bytes = 1;
      break;
    case quant::ScaleType::kE4M3Times:
    case quant::ScaleType::kE4M3Over:
    case quant::ScaleType::kU8Times:
    case quant::ScaleType::kI8Times:
      HEDDLE_CHECK(false && "no scheme that rounds has scales on two levels");
  }
  return drawn;
}

quant::UnpackedMatrix draw_matrix(const DrawnRows& rows, const quant::RowFormat& format) {
  const int64_t K = format.K;
  const DrawnScale scale = drawn_scale(format, rows.weight);
  quant::UnpackedMatrix matrix{.format = format, .N = rows.num_rows};
  matrix.codes.resize(static_cast<size_t>(rows.num_rows * K));
  for (int64_t n = 0; n < rows.num_rows; ++n) {
    const int64_t first = (rows.first_row + n * rows.row_step) * K;
    uint8_t* const codes = matrix.codes.data() + n * K;
    for (int64_t k = 0; k < K; ++k) {
      const int64_t index = first + k;
      codes[k] = code_of_bell(
          format.code, draw_bell(draw_keys(rows.weight.key, index), static_cast<uint32_t>(index)));
    }
  }
  matrix.scales.resize(static_cast<size_t>(rows.num_rows * format.scale_bytes()));
  for (size_t i = 0; i < matrix.scales.size(); i += static_cast<size_t>(scale.num_bytes)) {
    std::memcpy(matrix.scales.data() + i, &scale.bits, static_cast<size_t>(scale.num_bytes));
  }
  if (format.has_zeros) {
    matrix.zeros.assign(static_cast<size_t>(rows.num_rows * format.num_groups()), scale.zero);
  }
  return matrix;
}

}  // namespace heddle::checkpoint
