// SPDX-License-Identifier: Apache-2.0
// Plausible activations for benchmarks.
#pragma once

#include "core/tensor.h"

namespace heddle::ops {

// f32 numbers spread evenly over [-1, 1), the same ones every time.
[[nodiscard]] Tensor noise_tensor(const Shape& shape);

}  // namespace heddle::ops
