// SPDX-License-Identifier: Apache-2.0
// Checks that all matrix products share: row strides are at least the width, so that rows never
// overlap, and quantised weights are in memory of the device that reads them.
#pragma once

#include <string>

#include "core/shape_contract.h"
#include "ops/context.h"
#include "quant/packed_rows.h"

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
  if (weight.dtype != DType::kPacked) return {};
  const bool reads_gpu = context.device == DeviceKind::kCuda;
  if (weight.packed->on_gpu == reads_gpu) return {};
  return invalid_argument(std::string(op) + ": " + name + " is quantised in memory of the " +
                          (reads_gpu ? "host" : "GPU") + ", which this device does not read");
}

}  // namespace heddle::ops
