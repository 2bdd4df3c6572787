// SPDX-License-Identifier: Apache-2.0
// Common to the contracts of matrix products: row strides of at least the width, so that
// rows never overlap, and plain weights on CUDA.
#pragma once

#include <string>

#include "core/shape_contract.h"
#include "ops/context.h"

namespace heddle::ops {

inline void require_row_stride(ShapeContract& contract, const char* name,
                               const TensorView& tensor) {
  const Shape& shape = tensor.shape;
  if (shape.rank() == 0 || shape[0] <= 1 || tensor.packed != nullptr) return;
  contract.require(tensor.row_stride >= TensorView::dense_row_stride(shape), name,
                   static_cast<double>(tensor.row_stride),
                   "have a row stride of at least its width");
}

inline Status check_weight_device(const Context& context, const char* op, const char* name,
                                  const TensorView& weight) {
  if (context.device == DeviceKind::kCpu || weight.dtype != DType::kPacked) return {};
  return invalid_argument(std::string(op) + ": " + name +
                          " is quantised; on CUDA weights are dequantised when they are loaded");
}

}  // namespace heddle::ops
