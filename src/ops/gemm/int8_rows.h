// SPDX-License-Identifier: Apache-2.0
// Memory layout of a row of x that was quantised for int8_product.h: quantise_row() writes it, and
// the kernels of int8_product.cpp read it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace heddle::ops {

inline constexpr int64_t kInt8Step = 64;    // columns of x that share a scale: one vector of bytes
inline constexpr int64_t kInt4Chunk = 128;  // columns whose 4-bit codes fill 64 bytes

constexpr int64_t padded_to_chunks(int64_t K) {
  return (K + kInt4Chunk - 1) / kInt4Chunk * kInt4Chunk;
}

// A quantised row of x, padded with zeros to whole chunks.
//   values      [padded] int8
//   offsets     [padded / 4] int32: -128 times the sum of four values; corrects a lane's sum for
//               a zero point of 128
//   scales      [padded / 64] fp32. The upper halves of bytes of kU4 codes (packed_rows.h) are read
//               sixteen times too large; the scales of the columns they multiply are divided by 16
//   group_sums  [groups] fp32: scale * sum of the values of a weight group; corrects the group's
//               sum for a zero point of 1
struct Int8Row {
  const std::byte* begin;
  int64_t width;  // K rounded up to whole chunks

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
