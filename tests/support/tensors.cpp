// SPDX-License-Identifier: Apache-2.0
#include "support/tensors.h"

#include <cmath>
#include <cstring>
#include <random>

namespace heddle::testing {

namespace {

double element(const TensorView& view, int64_t row, int64_t column) {
  switch (view.dtype) {
    case DType::kF32:
      return static_cast<double>(view.row<float>(row)[column]);
    case DType::kBf16:
      return static_cast<double>(to_float(view.row<Bf16>(row)[column]));
    case DType::kF16:
      return static_cast<double>(to_float(view.row<F16>(row)[column]));
    default:
      HEDDLE_CHECK(false && "a floating dtype");
  }
}

int64_t row_width(const TensorView& view) {
  return view.shape[0] == 0 ? 0 : view.num_elements() / view.shape[0];
}

void set_element(Tensor& tensor, size_t index, float value) {
  if (tensor.dtype() == DType::kF32) tensor.span<float>()[index] = value;
  if (tensor.dtype() == DType::kBf16) tensor.span<Bf16>()[index] = to_bf16(value);
  if (tensor.dtype() == DType::kF16) tensor.span<F16>()[index] = to_f16(value);
}

}  // namespace

Tensor random_tensor(const Shape& shape, DType dtype, uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  Tensor tensor(shape, dtype);
  for (size_t i = 0; i < static_cast<size_t>(tensor.num_elements()); ++i) {
    set_element(tensor, i, uniform(generator));
  }
  return tensor;
}

Tensor converted(const TensorView& from, DType dtype) {
  Tensor tensor(from.shape, dtype);
  const int64_t width = row_width(from);
  for (int64_t row = 0; row < from.shape[0]; ++row) {
    for (int64_t column = 0; column < width; ++column) {
      set_element(tensor, static_cast<size_t>(row * width + column),
                  static_cast<float>(element(from, row, column)));
    }
  }
  return tensor;
}

void poison(Tensor& tensor) {
  std::memset(tensor.view().data, 0xff, static_cast<size_t>(tensor.num_bytes()));
}

std::vector<double> to_doubles(const TensorView& view) {
  std::vector<double> values;
  const int64_t width = row_width(view);
  for (int64_t row = 0; row < view.shape[0]; ++row) {
    for (int64_t column = 0; column < width; ++column) values.push_back(element(view, row, column));
  }
  return values;
}

double relative_error(std::span<const double> got, std::span<const double> want) {
  HEDDLE_CHECK_EQ(got.size(), want.size());
  double delta = 0;
  double norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    delta += (got[i] - want[i]) * (got[i] - want[i]);
    norm += want[i] * want[i];
  }
  if (!std::isfinite(delta) || !std::isfinite(norm)) return INFINITY;
  return norm > 0 ? std::sqrt(delta / norm) : std::sqrt(delta);
}

double relative_error(const TensorView& got, std::span<const double> want) {
  return relative_error(to_doubles(got), want);
}

bool same_bits(const TensorView& a, const TensorView& b) {
  if (!(a.shape == b.shape) || a.dtype != b.dtype) return false;
  const auto row_bytes = static_cast<size_t>(bytes_of(a.dtype, row_width(a)));
  for (int64_t row = 0; row < a.shape[0]; ++row) {
    const auto offset_a = bytes_of(a.dtype, a.row_stride) * row;
    const auto offset_b = bytes_of(b.dtype, b.row_stride) * row;
    if (std::memcmp(a.as<std::byte>() + offset_a, b.as<std::byte>() + offset_b, row_bytes) != 0)
      return false;
  }
  return true;
}

}  // namespace heddle::testing
