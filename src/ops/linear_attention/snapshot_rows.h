// SPDX-License-Identifier: Apache-2.0
// Snapshots of a layer: which tensors they have, and how the rows of their matrices are stored. The
// state of a running sequence is fp32; snapshots may be
//
//   f32    unchanged
//   bf16   rounded to nearest even: at most 2^-9 of a number off
//   i8     q = round(x * 127 / m), m the largest magnitude of the row; the scale m / 127 is stored,
//          too; at most half a scale off
//
// In i8 a row with a number that is not finite becomes NaN as a whole, so that the error is not
// hidden; a row whose scale would not be a normal number becomes zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/shape_contract.h"
#include "ops/forward_context.h"

namespace heddle::ops {

// Rows of `width` numbers, stored without gaps.
struct SnapshotRows {
  DType dtype = DType::kF32;  // format of the numbers: f32, bf16 or i8
  void* data = nullptr;
  float* scales = nullptr;  // i8: factor of the numbers of each row; null for other dtypes
};

// Converts fp32 rows to the format of snapshots. Vectorised, with the same bits on every
// instruction set; reads every number once.
void encode_snapshot_rows(const float* from, int64_t num_rows, int64_t width,
                          const SnapshotRows& to);
void decode_snapshot_rows(const SnapshotRows& from, int64_t num_rows, int64_t width, float* to);

// Returns the pool of snapshots of a layer. A layer without snapshot slots stores its snapshots in
// its working slots.
inline SnapshotLayer snapshot_or_working(const SnapshotLayer& snapshots,
                                         const StateLayer& working) {
  if (snapshots.conv.data != nullptr || snapshots.recurrent.data != nullptr) return snapshots;
  return {.conv = working.conv, .recurrent = working.recurrent, .scales = {}};
}

struct SnapshotDims {
  Dim* slots;
  Dim* Nv;
  Dim* Dv;
  Dim* Dk;
};

inline void expect_snapshot_matrices(ShapeContract& contract, const SnapshotLayer& snapshots,
                                     const SnapshotDims& dims) {
  contract.expect("snapshots.recurrent", snapshots.recurrent,
                  {dims.slots, dims.Nv, dims.Dv, dims.Dk},
                  DTypeSet(DType::kF32) | DType::kBf16 | DType::kI8);
  if (snapshots.recurrent.dtype == DType::kI8) {
    contract.expect("snapshots.scales", snapshots.scales, {dims.slots, dims.Nv, dims.Dv},
                    DType::kF32);
  }
}

// The rows of a snapshot slot from row `row` on; rows are counted as head * Dv + value row.
inline SnapshotRows snapshot_rows(const SnapshotLayer& layer, int64_t slot, int64_t row) {
  const MutableTensorView& matrices = layer.recurrent;
  const int64_t number = slot * matrices.row_stride + row * matrices.shape[3];
  return {.dtype = matrices.dtype,
          .data = matrices.as<std::byte>() + bytes_of(matrices.dtype, number),
          .scales = matrices.dtype == DType::kI8 ? layer.scales.row<float>(slot) + row : nullptr};
}

}  // namespace heddle::ops
