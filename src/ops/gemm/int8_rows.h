// SPDX-License-Identifier: Apache-2.0
// The layout of a row of x that is quantised for int8_product.h: quantise_row() writes it, and the
// kernels of int8_product.cpp read it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ops {

inline constexpr int64_t kInt8Step = 64;    // columns that share a scale of x; a vector of bytes
inline constexpr int64_t kInt4Chunk = 128;  // columns of 64 bytes of 4-bit codes

constexpr int64_t padded_to_chunks(int64_t K) {
  return (K + kInt4Chunk - 1) / kInt4Chunk * kInt4Chunk;
}

// A row, rounded up to whole chunks with zeros.
//   values      [padded] int8
//   offsets     [padded / 4] int32: -128 times the sum of four values, what a zero point of 128
//               takes off a lane's sum
//   scales      [padded / 64] fp32; of columns that meet the upper halves of bytes of kU4 codes
//               (packed_rows.h), which are read sixteen times too large, a sixteenth
//   group_sums  [groups] fp32: scale * sum of a weight group's values, what a zero point of 1 takes
struct Int8Row {
  const std::byte* begin;
  int64_t width;  // padded_to_chunks(K)

  [[nodiscard]] const int8_t* values() const { return reinterpret_cast<const int8_t*>(begin); }

  [[nodiscard]] const int32_t* offsets() const {
    return reinterpret_cast<const int32_t*>(begin + width);
  }

  [[nodiscard]] const float* scales() const {
    return reinterpret_cast<const float*>(begin + 2 * width);
  }

  [[nodiscard]] const float* group_sums() const {
    return reinterpret_cast<const float*>(begin + 2 * width +
                                          (width / kInt8Step * 4 + 63) / 64 * 64);
  }
};

}  // namespace heddle::ops
