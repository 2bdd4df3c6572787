// SPDX-License-Identifier: Apache-2.0
// What the ops that write frozen states have in common: which tensors they are, what shapes those
// have, where a row lies.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/shape_contract.h"
#include "ops/forward_context.h"
#include "ops/linear_attention/frozen_rows.h"

namespace heddle::ops {

// A layer without frozen slots of its own freezes into its working ones.
inline FrozenLayer frozen_or_working(const FrozenLayer& frozen, const StateLayer& working) {
  if (frozen.conv.data != nullptr || frozen.recurrent.data != nullptr) return frozen;
  return {.conv = working.conv, .recurrent = working.recurrent, .scales = {}};
}

struct FrozenDims {
  Dim* slots;
  Dim* Nv;
  Dim* Dv;
  Dim* Dk;
};

inline void expect_frozen_matrices(ShapeContract& contract, const FrozenLayer& frozen,
                                   const FrozenDims& dims) {
  contract.expect("frozen.recurrent", frozen.recurrent, {dims.slots, dims.Nv, dims.Dv, dims.Dk},
                  DTypeSet(DType::kF32) | DType::kBf16 | DType::kI8);
  if (frozen.recurrent.dtype == DType::kI8) {
    contract.expect("frozen.scales", frozen.scales, {dims.slots, dims.Nv, dims.Dv}, DType::kF32);
  }
}

// From row `row` on, counted over the value heads of the slot: head * Dv + value row.
inline FrozenRows frozen_rows(const FrozenLayer& layer, int64_t slot, int64_t row) {
  const MutableTensorView& matrices = layer.recurrent;
  const int64_t number = slot * matrices.row_stride + row * matrices.shape[3];
  return {.dtype = matrices.dtype,
          .data = matrices.as<std::byte>() + bytes_of(matrices.dtype, number),
          .scales = matrices.dtype == DType::kI8 ? layer.scales.row<float>(slot) + row : nullptr};
}

}  // namespace heddle::ops
