// SPDX-License-Identifier: Apache-2.0
// Quantised weights for tests: random numbers rounded to a scheme, with the memory they lie in.
#pragma once

#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "quant/dequantise.h"
#include "quant/round_to_nearest.h"
#include "quant/unpacked.h"

namespace heddle::ops::testing {

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

  // The numbers it stands for, [N, K].
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
        .may_round_x = may_round_x};
    quant::pack_rows(matrix, 0, matrix.N, rows, 0);
    weight_.parts.push_back({.num_rows = matrix.N, .packed = rows});
  }

  Shape shape_;
  Memory codes_, scales_, zeros_;
  quant::PackedWeight weight_;
};

}  // namespace heddle::ops::testing
