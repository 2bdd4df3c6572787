// SPDX-License-Identifier: Apache-2.0
// Test tensors for matrix products: seeded random numbers, rows wider than the tensor with NaN
// between them, memory that ends where an unreadable page begins.
#pragma once

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <sys/mman.h>

#include "core/check.h"
#include "core/tensor.h"

namespace heddle::ops::testing {

inline constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

inline void store_element(void* data, DType dtype, int64_t index, float value) {
  auto* bytes = static_cast<unsigned char*>(data) + bytes_of(dtype, index);
  if (dtype == DType::kF32) {
    std::memcpy(bytes, &value, sizeof(value));
  } else {
    const uint16_t bits = dtype == DType::kBf16 ? to_bf16(value).bits : to_f16(value).bits;
    std::memcpy(bytes, &bits, sizeof(bits));
  }
}

// A tensor whose last byte is the last one before an unreadable page: a kernel that reads past a
// row's or the tensor's end crashes, or meets the NaN between the rows.
class GuardedTensor {
 public:
  GuardedTensor(const Shape& shape, DType dtype, int64_t row_padding = 0)
      : shape_(shape), dtype_(dtype), row_width_(TensorView::dense_row_stride(shape)) {
    row_stride_ = row_width_ + row_padding;
    const int64_t rows = shape.rank() == 0 ? 1 : shape[0];
    const int64_t elements = rows == 0 ? 0 : (rows - 1) * row_stride_ + row_width_;
    const auto bytes = static_cast<size_t>(bytes_of(dtype, elements));
    constexpr size_t kPage = 4096;
    map_bytes_ = (bytes + kPage - 1) / kPage * kPage + kPage;
    map_ = mmap(nullptr, map_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    HEDDLE_CHECK(map_ != MAP_FAILED);
    data_ = static_cast<unsigned char*>(map_) + (map_bytes_ - kPage - bytes);
    HEDDLE_CHECK(
        mprotect(static_cast<unsigned char*>(map_) + map_bytes_ - kPage, kPage, PROT_NONE) == 0);
    for (int64_t i = 0; i < elements; ++i) store_element(data_, dtype, i, kNaN);
  }

  ~GuardedTensor() { munmap(map_, map_bytes_); }

  GuardedTensor(const GuardedTensor&) = delete;
  GuardedTensor& operator=(const GuardedTensor&) = delete;

  // Numbers in [-scale, scale] in every row; the padding stays NaN.
  GuardedTensor& randomize(uint64_t seed, float scale = 1.0f) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<float> uniform(-scale, scale);
    for (int64_t row = 0; row < shape_[0]; ++row) {
      for (int64_t i = 0; i < row_width_; ++i) {
        store_element(data_, dtype_, row * row_stride_ + i, uniform(random));
      }
    }
    return *this;
  }

  [[nodiscard]] MutableTensorView view() { return {data_, dtype_, shape_, row_stride_}; }

  // Whether what lies between the rows is still NaN (fp32 tensors).
  [[nodiscard]] bool padding_untouched() const {
    for (int64_t row = 0; row + 1 < shape_[0]; ++row) {
      for (int64_t i = row_width_; i < row_stride_; ++i) {
        float value = 0;
        std::memcpy(&value, data_ + (row * row_stride_ + i) * 4, sizeof(value));
        if (!std::isnan(value)) return false;
      }
    }
    return true;
  }

 private:
  Shape shape_;
  DType dtype_;
  int64_t row_width_ = 0;
  int64_t row_stride_ = 0;
  void* map_ = nullptr;
  size_t map_bytes_ = 0;
  unsigned char* data_ = nullptr;
};

}  // namespace heddle::ops::testing
