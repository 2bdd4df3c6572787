// SPDX-License-Identifier: Apache-2.0
// For tests: random blocks of GGUF files, and what one column of them stands for, in double
// precision and column by column, as the format is described (block_formats.h).
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/dtype.h"
#include "quant/block_formats.h"

namespace heddle::quant::testing {

inline constexpr std::array kBlockTypes = {BlockType::kQ4_0, BlockType::kQ4_1, BlockType::kQ5_0,
                                           BlockType::kQ5_1, BlockType::kQ8_0, BlockType::kMxfp4,
                                           BlockType::kQ4K,  BlockType::kQ5K,  BlockType::kQ6K};

// Where the two fp16 numbers of a block begin: the scale, and the minimum or -1.
struct HalfPlaces {
  int64_t scale;
  int64_t minimum;
};

inline HalfPlaces half_places(BlockType type) {
  if (type == BlockType::kQ6K) return {208, -1};
  const bool has_minimum = type == BlockType::kQ4_1 || type == BlockType::kQ5_1 ||
                           type == BlockType::kQ4K || type == BlockType::kQ5K;
  return {0, has_minimum ? 2 : -1};
}

inline void put_half(std::byte* target, float value) {
  const F16 half = to_f16(value);
  std::memcpy(target, &half, sizeof(half));
}

// Every bit of codes and small scales is random; the fp16 numbers are of the size of a model's.
inline std::vector<std::byte> random_blocks(BlockType type, int64_t num_blocks, uint64_t seed) {
  std::mt19937_64 random(seed);
  const int64_t size = size_of(type).bytes;
  std::vector<std::byte> bytes(static_cast<size_t>(num_blocks * size));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 255u);
  for (int64_t i = 0; i < num_blocks; ++i) {
    std::byte* const block = bytes.data() + i * size;
    if (type == BlockType::kMxfp4) {
      *block = static_cast<std::byte>(118 + random() % 6);
      continue;
    }
    // The small scales of the large blocks multiply these by up to 63, or 127.
    const float step = size_of(type).columns > 32 ? 4e-7f : 1e-5f;
    const auto number = [&] { return (static_cast<float>(random() % 2000) - 1000) * step; };
    const HalfPlaces places = half_places(type);
    put_half(block + places.scale, number());
    if (places.minimum >= 0) put_half(block + places.minimum, number());
  }
  return bytes;
}

// The number of column k of a row of blocks.
inline double block_element(BlockType type, const std::byte* row, int64_t k) {
  const BlockSize size = size_of(type);
  const std::byte* const block = row + k / size.columns * size.bytes;
  const int64_t c = k % size.columns;
  const auto byte = [block](int64_t at) { return std::to_integer<int>(block[at]); };
  const auto half = [block](int64_t at) {
    F16 value;
    std::memcpy(&value, block + at, sizeof(value));
    return static_cast<double>(to_float(value));
  };
  const auto nibble = [&](int64_t at, bool high) { return (byte(at) >> (high ? 4 : 0)) % 16; };
  // Types with 32 columns: the low bits of the code, then the fifth bit.
  const auto low = [&](int64_t begin) { return nibble(begin + c % 16, c >= 16); };
  const auto fifth = [&](int64_t begin) { return ((byte(begin + c / 8) >> (c % 8)) & 1) * 16; };
  switch (type) {
    case BlockType::kQ8_0:
      return half(0) * static_cast<int8_t>(byte(2 + c));
    case BlockType::kQ4_0:
      return half(0) * (low(2) - 8);
    case BlockType::kQ4_1:
      return half(0) * low(4) + half(2);
    case BlockType::kQ5_0:
      return half(0) * (low(6) + fifth(2) - 16);
    case BlockType::kQ5_1:
      return half(0) * (low(8) + fifth(4)) + half(2);
    case BlockType::kMxfp4: {
      constexpr std::array kMagnitudes = {0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0};
      const int code = low(1);
      const double magnitude = kMagnitudes[static_cast<size_t>(code % 8)];
      return std::ldexp(code < 8 ? magnitude : -magnitude, byte(0) - 127);
    }
    case BlockType::kQ4K:
    case BlockType::kQ5K: {
      const int64_t group = c / 32;
      const int64_t codes = type == BlockType::kQ5K ? 48 : 16;
      int code = nibble(codes + c / 64 * 32 + c % 32, group % 2 == 1);
      if (type == BlockType::kQ5K) code += ((byte(16 + c % 32) >> group) & 1) * 16;
      // Eight scales, then eight minima: six bits each, the upper two of the last four apart.
      const auto six = [&](int64_t which) {
        const int64_t j = group % 4;
        if (group < 4) return byte(4 + which * 4 + j) % 64;
        return nibble(12 + j, which == 1) + byte(4 + which * 4 + j) / 64 * 16;
      };
      return half(0) * six(0) * code - half(2) * six(1);
    }
    case BlockType::kQ6K: {
      const int64_t in_half = c % 128;
      const int code = nibble(c / 128 * 64 + in_half % 64, in_half >= 64) +
                       (byte(128 + c / 128 * 32 + c % 32) >> (in_half / 32 * 2)) % 4 * 16;
      return half(208) * static_cast<int8_t>(byte(192 + c / 16)) * (code - 32);
    }
  }
  return 0;
}

}  // namespace heddle::quant::testing
