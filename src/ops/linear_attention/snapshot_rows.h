// SPDX-License-Identifier: Apache-2.0
// How the rows of a snapshot's matrices are stored, which are fp32 while a sequence runs:
//
//   f32    as they are
//   bf16   rounded to nearest even: at most 2^-9 of a number
//   i8     q = round(x * 127 / m), m the largest magnitude of the row, beside the scale m / 127:
//          at most half a scale off
//
// A row of i8 that has a number which is not finite becomes NaN as a whole, so that nothing hides
// it; a row whose scale would be no normal number becomes zeros.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace heddle::ops {

// Rows of `width` numbers, end to end.
struct SnapshotRows {
  DType dtype = DType::kF32;  // f32, bf16 or i8
  void* data = nullptr;
  float* scales = nullptr;  // i8: what the numbers of each row are multiplied with; else null
};

// Vectorised; the same bits on every instruction set. Moves every number once.
void encode_snapshot_rows(const float* from, int64_t num_rows, int64_t width,
                          const SnapshotRows& to);
void decode_snapshot_rows(const SnapshotRows& from, int64_t num_rows, int64_t width, float* to);

}  // namespace heddle::ops
