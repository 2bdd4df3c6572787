// SPDX-License-Identifier: Apache-2.0
// Fixtures of the tests of matrix products: tensors of seeded random numbers whose rows are wider
// than the tensor with NaN between them, in memory that ends where an unreadable page begins;
// quantised weights with the memory they lie in; contexts with chosen instructions.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include <sys/mman.h>

#include "core/check.h"
#include "core/tensor.h"
#include "ops/context.h"
#include "ops/gemm/bf16_product.h"
#include "quant/dequantise.h"
#include "quant/packed_rows.h"
#include "quant/round_to_nearest.h"

namespace heddle::ops::testing {

// The fastest instructions of this CPU, with those of bf16 exactly where `bf16` wants them and the
// CPU has them, whether they are faster or not.
inline ProductInstructions instructions(bool bf16) {
  ProductInstructions instructions = ProductInstructions::fastest();
  instructions.bf16 = bf16 && has_bf16_products();
  return instructions;
}

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

// Random numbers rounded to a scheme.
class PackedTensor {
 public:
  // [N, K], or [E, N, K].
  PackedTensor(const Shape& shape, quant::Scheme scheme, int64_t group_size, uint64_t seed,
               bool may_round_x)
      : shape_(shape) {
    const int64_t K = shape[shape.rank() - 1];
    const int64_t rows = shape.num_elements() / K;
    std::mt19937_64 random(seed);
    std::normal_distribution<float> normal(0, 0.3f);
    std::vector<float> w(static_cast<size_t>(rows * K));
    for (float& value : w) value = normal(random);
    adopt(quant::round_to_nearest(w.data(), rows, K, scheme, group_size), may_round_x);
  }

  PackedTensor(const Shape& shape, const quant::UnpackedMatrix& matrix, bool may_round_x)
      : shape_(shape) {
    adopt(matrix, may_round_x);
  }

  [[nodiscard]] TensorView view() const {
    TensorView view(nullptr, DType::kPacked, shape_);
    view.packed = &weight_;
    return view;
  }

  [[nodiscard]] const quant::PackedRows& rows() const { return weight_.parts[0].packed; }

  [[nodiscard]] const quant::PackedWeight& weight() const { return weight_; }

  // The dequantised matrix, [N, K].
  [[nodiscard]] Tensor dequantised() const {
    Tensor out(shape_, DType::kF32);
    const int64_t K = rows().format.K;
    for (int64_t n = 0; n < rows().num_rows; ++n) {
      quant::dequantise_row(rows(), n, 0, K, out.span<float>().data() + n * K);
    }
    return out;
  }

 private:
  struct Free {
    void operator()(std::byte* memory) const { std::free(memory); }
  };

  using Memory = std::unique_ptr<std::byte, Free>;

  static Memory allocate(int64_t bytes) {
    const auto size = static_cast<size_t>((bytes + 63) / 64 * 64 + 64);
    return Memory(static_cast<std::byte*>(std::aligned_alloc(64, size)));
  }

  void adopt(const quant::UnpackedMatrix& matrix, bool may_round_x) {
    const quant::RowFormat& format = matrix.format;
    codes_ = allocate(matrix.N * format.code_bytes());
    scales_ = allocate(matrix.N * format.scale_bytes());
    zeros_ = allocate(matrix.N * format.num_groups());
    quant::PackedRows rows{
        .format = format,
        .num_rows = matrix.N,
        .codes = codes_.get(),
        .scales = scales_.get(),
        .zeros = format.has_zeros ? reinterpret_cast<uint8_t*>(zeros_.get()) : nullptr,
        .rows_per_scale = format.block_rows,
        .may_round_x = may_round_x};
    quant::pack_rows(matrix, 0, matrix.N, rows, 0);
    weight_.parts.push_back({.num_rows = matrix.N, .packed = rows});
  }

  Shape shape_;
  Memory codes_, scales_, zeros_;
  quant::PackedWeight weight_;
};

}  // namespace heddle::ops::testing
