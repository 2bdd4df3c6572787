// SPDX-License-Identifier: Apache-2.0
// Snapshots of a layer: which tensors they are, and how the rows of their matrices are stored,
// which are fp32 while a sequence runs:
//
//   f32    as they are
//   bf16   rounded to nearest even: at most 2^-9 of a number
//   i8     q = round(x * 127 / m), m the largest magnitude of the row, beside the scale m / 127:
//          at most half a scale off
//
// A row of i8 that has a number which is not finite becomes NaN as a whole, so that nothing hides
// it; a row whose scale would be no normal number becomes zeros.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/shape_contract.h"
#include "ops/forward_context.h"

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

// Without snapshot slots, a layer saves into its working slots.
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

// From row `row` on, counted over the value heads of the slot: head * Dv + value row.
inline SnapshotRows snapshot_rows(const SnapshotLayer& layer, int64_t slot, int64_t row) {
  const MutableTensorView& matrices = layer.recurrent;
  const int64_t number = slot * matrices.row_stride + row * matrices.shape[3];
  return {.dtype = matrices.dtype,
          .data = matrices.as<std::byte>() + bytes_of(matrices.dtype, number),
          .scales = matrices.dtype == DType::kI8 ? layer.scales.row<float>(slot) + row : nullptr};
}

}  // namespace heddle::ops
