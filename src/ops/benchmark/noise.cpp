// SPDX-License-Identifier: Apache-2.0
#include "ops/benchmark/noise.h"

#include <random>

namespace heddle::ops {

Tensor noise_tensor(const Shape& shape) {
  Tensor tensor(shape, DType::kF32);
  std::mt19937 random(2);
  std::uniform_real_distribution<float> uniform(-1.0f, 1.0f);
  for (float& value : tensor.span<float>()) value = uniform(random);
  return tensor;
}

}  // namespace heddle::ops
