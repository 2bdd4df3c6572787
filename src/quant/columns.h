// SPDX-License-Identifier: Apache-2.0
// Selects some columns of quantised rows, for ranks that share a matrix by columns. Codes, scales
// and zero points are copied and not rounded again, so every column keeps its values.
#pragma once

#include <cstdint>

#include "quant/packed_rows.h"

namespace heddle::quant {

// The format of columns [first, first + count) of rows in `format`. The group size shrinks until it
// divides `first` and `count`: groups of 128 in columns [96, 192) become groups of 32. With
// activation order the columns keep their group indices. If the cut splits 256 columns that share a
// scale, all scales become fp32 with the same values.
[[nodiscard]] RowFormat columns_of(const RowFormat& format, int64_t first, int64_t count);

// Copies these columns of every row. Cost: about a nanosecond per column.
[[nodiscard]] UnpackedMatrix columns_of(const UnpackedMatrix& matrix, int64_t first, int64_t count);

}  // namespace heddle::quant
