// SPDX-License-Identifier: Apache-2.0
// UnpackedMatrix: a quantised matrix between a file's layout and ours, one byte a code. What the
// readers of the file formats (file_formats.h) and the quantisers (round_to_nearest.h) make, and
// what is packed from row by row. One matrix at a time: never a whole model.
#pragma once

#include <cstdint>
#include <vector>

#include "quant/packed_rows.h"

namespace heddle::quant {

struct UnpackedMatrix {
  RowFormat format;
  int64_t N = 0;
  std::vector<uint8_t> codes;     // [N, K]
  std::vector<std::byte> scales;  // [N, groups] of format.scale
  std::vector<uint8_t> zeros;     // [N, groups], or empty
};

// Copies rows [source_row, source_row + count) to rows from target_row on. The formats must have
// the same layout.
void pack_rows(const UnpackedMatrix& source, int64_t source_row, int64_t count,
               const PackedRows& target, int64_t target_row);

}  // namespace heddle::quant
