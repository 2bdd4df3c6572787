// SPDX-License-Identifier: Apache-2.0
// Packed rows back to numbers, exactly as their format says: an exact difference of code and zero
// point, times the scale, rounded once to fp32; where there are minima, plus the minimum. Exact and
// fp32 runs, prefill and the tests multiply with these, a few rows or columns at a time.
#pragma once

#include <cstdint>

#include "quant/packed_rows.h"

namespace heddle::quant {

// One element, by the definition. For tests and tools.
[[nodiscard]] float dequantised_element(const PackedRows& rows, int64_t row, int64_t k);

// The scale of one group of a row.
[[nodiscard]] float scale_of(const PackedRows& rows, int64_t row, int64_t group);

// The minimum of one group of a row, or -0, which changes no number that it is added to.
[[nodiscard]] float minimum_of(const PackedRows& rows, int64_t row, int64_t group);

// Columns [first, first + count) of a row. `first` is a multiple of 128. The same bits as
// dequantised_element(). Cost: a few columns a nanosecond.
void dequantise_row(const PackedRows& rows, int64_t row, int64_t first, int64_t count,
                    float* target);

}  // namespace heddle::quant
