// SPDX-License-Identifier: Apache-2.0
// Some columns of quantised rows, for ranks that share a matrix by columns: codes, scales and zero
// points as they are, so that every column stands for the same number as before.
#pragma once

#include <cstdint>

#include "quant/packed_rows.h"

namespace heddle::quant {

// The format of columns [first, first + count) of rows of `format`. Groups become as short as
// divides `first` and `count`, too: 128 in columns [96, 192) become 32. Groups in activation order
// keep their numbers. Scales of 256 columns that the cut does not respect become fp32 ones, which
// have the same values.
[[nodiscard]] RowFormat columns_of(const RowFormat& format, int64_t first, int64_t count);

// Those columns of every row. Cost: about a nanosecond a column.
[[nodiscard]] UnpackedMatrix columns_of(const UnpackedMatrix& matrix, int64_t first, int64_t count);

}  // namespace heddle::quant
