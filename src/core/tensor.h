// SPDX-License-Identifier: Apache-2.0
// Shapes and views of tensors. A view points at memory that another object owns: a weight in a
// mapped file, a part of a step's arena, a row of a pool. Views are values of about a cache line
// and never own memory (Buffer in device/ does).
//
// Layout: row-major with a contiguous last dimension. The stride of the first dimension may exceed
// the row width, so that a view can be a column range of a wider tensor; all other dimensions are
// dense.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/check.h"
#include "core/dtype.h"

namespace heddle {

namespace quant {
struct PackedWeight;
}

// Up to five dimensions, the outermost first.
class Shape {
 public:
  static constexpr int kMaxRank = 5;

  Shape() = default;

  Shape(std::initializer_list<int64_t> dims)
      : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}

  explicit Shape(std::span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
    HEDDLE_CHECK_LE(rank_, kMaxRank);
    for (int i = 0; i < rank_; ++i) dims_[static_cast<size_t>(i)] = dims[static_cast<size_t>(i)];
  }

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int64_t operator[](int i) const {
    HEDDLE_DCHECK(i >= 0 && i < rank_);
    return dims_[static_cast<size_t>(i)];
  }

  [[nodiscard]] int64_t num_elements() const {
    int64_t count = 1;
    for (int i = 0; i < rank_; ++i) count *= dims_[static_cast<size_t>(i)];
    return count;
  }

  [[nodiscard]] std::span<const int64_t> dims() const {
    return {dims_.data(), static_cast<size_t>(rank_)};
  }

  friend bool operator==(const Shape& a, const Shape& b) {
    if (a.rank_ != b.rank_) return false;
    for (size_t i = 0; i < static_cast<size_t>(a.rank_); ++i) {
      if (a.dims_[i] != b.dims_[i]) return false;
    }
    return true;
  }

  [[nodiscard]] std::string to_string() const;  // for example "[3, 64]"

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// Number of elements of `dims`. Error if one is negative or the product exceeds int64; for shapes
// from untrusted files.
Result<int64_t> checked_num_elements(std::span<const int64_t> dims);

template <typename Pointer>
struct BasicTensorView {
  Pointer data = nullptr;
  DType dtype = DType::kF32;
  Shape shape;
  int64_t row_stride = 0;  // distance from one index of dimension 0 to the next, in elements

  // For dtype kPacked, which has no `data`: where and in which layout the weight is stored
  // (quant/packed_rows.h).
  const quant::PackedWeight* packed = nullptr;

  BasicTensorView() = default;

  BasicTensorView(Pointer pointer, DType type, const Shape& dims)
      : data(pointer), dtype(type), shape(dims), row_stride(dense_row_stride(dims)) {}

  BasicTensorView(Pointer pointer, DType type, const Shape& dims, int64_t stride)
      : data(pointer), dtype(type), shape(dims), row_stride(stride) {}

  [[nodiscard]] static int64_t dense_row_stride(const Shape& dims) {
    int64_t stride = 1;
    for (int i = 1; i < dims.rank(); ++i) stride *= dims[i];
    return stride;
  }

  [[nodiscard]] bool dense() const {
    return shape.rank() == 0 || shape[0] <= 1 || row_stride == dense_row_stride(shape);
  }

  [[nodiscard]] int64_t num_elements() const { return shape.num_elements(); }

  [[nodiscard]] int64_t num_bytes() const { return bytes_of(dtype, num_elements()); }

  // The first element as `T`. The caller must have checked the dtype.
  template <typename T>
  [[nodiscard]] auto as() const {
    if constexpr (std::is_const_v<std::remove_pointer_t<Pointer>>) {
      return static_cast<const T*>(data);
    } else {
      return static_cast<T*>(data);
    }
  }

  template <typename T>
  [[nodiscard]] auto row(int64_t index) const {
    return as<T>() + index * row_stride;
  }
};

struct TensorView : BasicTensorView<const void*> {
  using BasicTensorView::BasicTensorView;
};

struct MutableTensorView : BasicTensorView<void*> {
  using BasicTensorView::BasicTensorView;

  operator TensorView() const {  // NOLINT(google-explicit-constructor): a mutable view is a view
    return {data, dtype, shape, row_stride};
  }
};

// Owned host memory with a shape, 64-byte aligned and zero-filled. For tests, weights that were
// converted to another layout, and small constants; the data of steps is in arenas.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Shape& shape, DType dtype);
  ~Tensor();
  Tensor(Tensor&& other) noexcept;
  Tensor& operator=(Tensor&& other) noexcept;
  Tensor(const Tensor&) = delete;
  Tensor& operator=(const Tensor&) = delete;

  [[nodiscard]] const Shape& shape() const { return shape_; }

  [[nodiscard]] DType dtype() const { return dtype_; }

  [[nodiscard]] MutableTensorView view() { return {data_, dtype_, shape_}; }

  [[nodiscard]] TensorView view() const { return {data_, dtype_, shape_}; }

  [[nodiscard]] int64_t num_elements() const { return shape_.num_elements(); }

  [[nodiscard]] int64_t num_bytes() const { return bytes_of(dtype_, num_elements()); }

  template <typename T>
  [[nodiscard]] std::span<T> span() {
    return {static_cast<T*>(data_), static_cast<size_t>(num_elements())};
  }

  template <typename T>
  [[nodiscard]] std::span<const T> span() const {
    return {static_cast<const T*>(data_), static_cast<size_t>(num_elements())};
  }

 private:
  Shape shape_;
  DType dtype_ = DType::kF32;
  void* data_ = nullptr;
};

}  // namespace heddle
