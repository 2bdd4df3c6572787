// SPDX-License-Identifier: Apache-2.0
// The contract on row strides: at least the width, so that rows never overlap.
#pragma once

#include "core/shape_contract.h"

namespace heddle::ops {

inline void require_row_stride(ShapeContract& contract, const char* name,
                               const TensorView& tensor) {
  const Shape& shape = tensor.shape;
  if (shape.rank() == 0 || shape[0] <= 1 || tensor.packed != nullptr) return;
  contract.require(tensor.row_stride >= TensorView::dense_row_stride(shape), name,
                   static_cast<double>(tensor.row_stride),
                   "have a row stride of at least its width");
}

}  // namespace heddle::ops
