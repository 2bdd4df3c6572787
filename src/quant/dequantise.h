// SPDX-License-Identifier: Apache-2.0
// Converts packed rows to numbers exactly as their format defines: the difference of code and zero
// point, which is exact, times the scale, rounded once to fp32; plus the minimum if the format has
// minima. Runs in exact mode or fp32, prefill and tests multiply with these numbers, a few rows or
// columns at a time.
#pragma once

#include <cstdint>

#include "quant/packed_rows.h"

namespace heddle::quant {

// One element, computed by the definition. For tests and tools.
[[nodiscard]] float dequantised_element(const PackedRows& rows, int64_t row, int64_t k);

// The scale of one group of a row.
[[nodiscard]] float scale_of(const PackedRows& rows, int64_t row, int64_t group);

// The minimum of one group of a row; -0 if the format has none: adding it changes no number.
[[nodiscard]] float minimum_of(const PackedRows& rows, int64_t row, int64_t group);

// Dequantises columns [first, first + count) of a row. `first` is a multiple of 128. The results
// have the same bits as dequantised_element()'s. Cost: a few columns a nanosecond.
void dequantise_row(const PackedRows& rows, int64_t row, int64_t first, int64_t count,
                    float* target);

}  // namespace heddle::quant
