// SPDX-License-Identifier: Apache-2.0
// Tensors for tests of ops: seeded random contents, poison, and the distance to a reference.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/tensor.h"

namespace heddle::testing {

// Uniform in [-1, 1), rounded to `dtype` (f32, bf16 or f16); the same for the same seed.
Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed);

// Dense, each element rounded to `dtype`; both f32, bf16 or f16.
Tensor converted(const TensorView& from, DType dtype);

// Every byte 0xff: NaN in all floating dtypes. Finds elements an op forgot to write.
void poison(Tensor& tensor);

// As doubles, row by row.
std::vector<double> to_doubles(const TensorView& view);

// ||got - want|| / ||want||; infinity if anything is not finite.
double relative_error(std::span<const double> got, std::span<const double> want);
double relative_error(const TensorView& got, std::span<const double> want);

// Whether both have the same bits.
bool same_bits(const TensorView& a, const TensorView& b);

}  // namespace heddle::testing
