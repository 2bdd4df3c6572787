// SPDX-License-Identifier: Apache-2.0
// Tensor maps: what the copy engine of Hopper knows of a matrix in global memory.
#pragma once

#include <cuda.h>

#include <heddle/status.h>

#include "core/tensor.h"

namespace heddle::ops::sm90 {

// Whether the driver offers them, and the copy engine can read these rows of bf16: they begin on 16
// bytes. Maps are made at every launch, for some 100 ns.
[[nodiscard]] bool can_map(const TensorView& rows);

// Boxes of 64 columns and `box_rows` rows of a bf16 matrix [R, N], swizzled with 128 bytes. Error:
// kInternal, with the driver's code.
Status map_boxes(const TensorView& rows, int box_rows, CUtensorMap& map);

}  // namespace heddle::ops::sm90
