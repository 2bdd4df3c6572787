// SPDX-License-Identifier: Apache-2.0
#include "core/tensor.h"

#include <cstring>
#include <new>
#include <utility>

namespace heddle {

namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

std::string Shape::to_string() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims_[static_cast<size_t>(i)]);
  }
  return text + "]";
}

Result<int64_t> checked_num_elements(std::span<const int64_t> dims) {
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (dim < 0) return invalid_argument("a dimension is negative: " + std::to_string(dim));
    if (__builtin_mul_overflow(count, dim, &count)) {
      return invalid_argument("the product of the dimensions does not fit into 64 bits");
    }
  }
  return count;
}

Tensor::Tensor(const Shape& shape, DType dtype) : shape_(shape), dtype_(dtype) {
  const auto bytes = static_cast<size_t>(num_bytes());
  data_ = ::operator new(bytes == 0 ? 1 : bytes, kAlignment);
  std::memset(data_, 0, bytes);
}

Tensor::~Tensor() { ::operator delete(data_, kAlignment); }

Tensor::Tensor(Tensor&& other) noexcept
    : shape_(other.shape_), dtype_(other.dtype_), data_(std::exchange(other.data_, nullptr)) {
  other.shape_ = Shape{0};
}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  std::swap(shape_, other.shape_);
  std::swap(dtype_, other.dtype_);
  std::swap(data_, other.data_);
  return *this;
}

}  // namespace heddle
