// SPDX-License-Identifier: Apache-2.0
// What the ops that write snapshots have in common: which tensors they are, what shapes those
// have, where a row lies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/shape_contract.h"
#include "ops/forward_context.h"
#include "ops/linear_attention/snapshot_rows.h"

namespace heddle::ops {

// A layer without snapshot slots of its own saves into its working ones.
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
