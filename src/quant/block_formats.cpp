// SPDX-License-Identifier: Apache-2.0
#include "quant/block_formats.h"

#include <cstring>

#include "core/check.h"
#include "quant/small_floats.h"

namespace heddle::quant {

namespace {

constexpr int64_t kSmallBlock = 32;
constexpr int64_t kLargeBlock = 256;

uint8_t byte_at(const std::byte* bytes, int64_t index) {
  return std::to_integer<uint8_t>(bytes[index]);
}

float half_at(const std::byte* bytes) {
  F16 value;
  std::memcpy(&value, bytes, sizeof(value));
  return to_float(value);
}

// 32 codes of 4 bits in 16 bytes, to `codes`.
void read_nibbles(const std::byte* bytes, uint8_t* codes) {
  for (int64_t j = 0; j < 16; ++j) {
    codes[j] = byte_at(bytes, j) & 15u;
    codes[16 + j] = byte_at(bytes, j) >> 4;
  }
}

void add_fifth_bits(const std::byte* bytes, uint8_t* codes) {
  uint32_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  for (int64_t j = 0; j < kSmallBlock; ++j) {
    codes[j] = static_cast<uint8_t>(codes[j] | (((bits >> j) & 1u) << 4));
  }
}

struct ScaleAndMinimum {
  float scale;
  float minimum;
};

// The j-th of eight pairs of 6-bit numbers in 12 bytes.
ScaleAndMinimum six_bits(const std::byte* b, int64_t j) {
  if (j < 4) {
    return {static_cast<float>(byte_at(b, j) & 63u), static_cast<float>(byte_at(b, j + 4) & 63u)};
  }
  const unsigned low = byte_at(b, j + 4);
  return {static_cast<float>((low & 15u) | ((unsigned{byte_at(b, j - 4)} >> 6) << 4)),
          static_cast<float>((low >> 4) | ((unsigned{byte_at(b, j)} >> 6) << 4))};
}

// The code of column k of a Q6_K block.
uint8_t six_bit_code(const std::byte* block, int64_t k) {
  const int64_t half = k / 128;
  const int64_t quarter = k % 128 / 32;
  const int64_t l = k % 32;
  const uint8_t low = byte_at(block, half * 64 + (quarter % 2) * 32 + l);
  const uint8_t high = byte_at(block, 128 + half * 32 + l);
  return static_cast<uint8_t>((quarter < 2 ? low & 15u : low >> 4) |
                              (((high >> (2 * quarter)) & 3u) << 4));
}

constexpr int64_t kSixBitScales = 192;  // where they begin in a Q6_K block
constexpr int64_t kSixBitD = 208;

float six_bit_scale(const std::byte* block, int64_t group) {
  const auto scale = static_cast<int8_t>(byte_at(block, kSixBitScales + group));
  return half_at(block + kSixBitD) * static_cast<float>(scale);
}

// Codes and scales of a block of a type that packed_format() serves. `scales` are bytes of the
// format's scale type.
void read_block(BlockType type, const std::byte* block, uint8_t* codes, std::byte* scales) {
  switch (type) {
    case BlockType::kQ8_0:
      for (int64_t j = 0; j < kSmallBlock; ++j) {
        codes[j] = static_cast<uint8_t>(byte_at(block, 2 + j) ^ 128u);
      }
      std::memcpy(scales, block, 2);
      return;
    case BlockType::kQ4_0:
      read_nibbles(block + 2, codes);
      std::memcpy(scales, block, 2);
      return;
    case BlockType::kQ5_0:
      read_nibbles(block + 6, codes);
      add_fifth_bits(block + 2, codes);
      std::memcpy(scales, block, 2);
      return;
    case BlockType::kMxfp4:
      read_nibbles(block + 1, codes);
      std::memcpy(scales, block, 1);
      return;
    case BlockType::kQ6K:
      for (int64_t k = 0; k < kLargeBlock; ++k) codes[k] = six_bit_code(block, k);
      for (int64_t group = 0; group < 16; ++group) {
        const float scale = six_bit_scale(block, group);
        std::memcpy(scales + 4 * group, &scale, sizeof(scale));
      }
      return;
    case BlockType::kQ4_1:
    case BlockType::kQ5_1:
    case BlockType::kQ4K:
    case BlockType::kQ5K:
      break;
  }
  HEDDLE_CHECK(false && "no packed form");
}

void dequantise_small(BlockType type, const std::byte* block, float* target) {
  uint8_t codes[kSmallBlock];
  const bool has_minimum = type == BlockType::kQ4_1 || type == BlockType::kQ5_1;
  const bool five_bits = type == BlockType::kQ5_0 || type == BlockType::kQ5_1;
  const int64_t head = has_minimum ? 4 : 2;
  read_nibbles(block + head + (five_bits ? 4 : 0), codes);
  if (five_bits) add_fifth_bits(block + head, codes);
  const float scale = half_at(block);
  const float minimum = has_minimum ? half_at(block + 2) : 0;
  const float zero = has_minimum ? 0.0f : five_bits ? 16.0f : 8.0f;
  for (int64_t j = 0; j < kSmallBlock; ++j) {
    const float product = (static_cast<float>(codes[j]) - zero) * scale;
    target[j] = has_minimum ? product + minimum : product;
  }
}

void dequantise_k(BlockType type, const std::byte* block, float* target) {
  const bool five_bits = type == BlockType::kQ5K;
  const float d = half_at(block);
  const float dmin = half_at(block + 2);
  const std::byte* const high = block + 16;
  const std::byte* const low = high + (five_bits ? 32 : 0);
  for (int64_t group = 0; group < 8; ++group) {
    const ScaleAndMinimum pair = six_bits(block + 4, group);
    const float scale = d * pair.scale;
    const float minimum = dmin * pair.minimum;
    for (int64_t l = 0; l < 32; ++l) {
      const uint8_t both = byte_at(low, group / 2 * 32 + l);
      auto code = static_cast<uint32_t>(group % 2 == 0 ? both & 15u : both >> 4);
      if (five_bits) code |= ((byte_at(high, l) >> group) & 1u) << 4;
      target[group * 32 + l] = scale * static_cast<float>(code) - minimum;
    }
  }
}

}  // namespace

BlockSize size_of(BlockType type) {
  switch (type) {
    case BlockType::kQ4_0:
      return {kSmallBlock, 18};
    case BlockType::kQ4_1:
      return {kSmallBlock, 20};
    case BlockType::kQ5_0:
      return {kSmallBlock, 22};
    case BlockType::kQ5_1:
      return {kSmallBlock, 24};
    case BlockType::kQ8_0:
      return {kSmallBlock, 34};
    case BlockType::kMxfp4:
      return {kSmallBlock, 17};
    case BlockType::kQ4K:
      return {kLargeBlock, 144};
    case BlockType::kQ5K:
      return {kLargeBlock, 176};
    case BlockType::kQ6K:
      return {kLargeBlock, 210};
  }
  HEDDLE_CHECK(false && "unknown block type");
}

std::optional<RowFormat> packed_format(BlockType type, int64_t K) {
  RowFormat format{.scale = ScaleType::kF16, .K = K, .group_size = kSmallBlock};
  switch (type) {
    case BlockType::kQ8_0:
      format.constant_zero = 128;
      return format;
    case BlockType::kQ5_0:
      format.constant_zero = 16;
      return format;
    case BlockType::kQ4_0:
      format.code = Code::kU4;
      format.constant_zero = 8;
      return format;
    case BlockType::kMxfp4:
      format.code = Code::kE2M1;
      format.scale = ScaleType::kE8M0;
      return format;
    case BlockType::kQ6K:
      format.scale = ScaleType::kF32;
      format.group_size = 16;
      format.constant_zero = 32;
      return format;
    case BlockType::kQ4_1:
    case BlockType::kQ5_1:
    case BlockType::kQ4K:
    case BlockType::kQ5K:
      return std::nullopt;
  }
  HEDDLE_CHECK(false && "unknown block type");
}

void dequantise_blocks(BlockType type, const std::byte* blocks, int64_t num_blocks, float* target) {
  const BlockSize size = size_of(type);
  for (int64_t i = 0; i < num_blocks; ++i, blocks += size.bytes, target += size.columns) {
    switch (type) {
      case BlockType::kQ8_0: {
        const float scale = half_at(blocks);
        for (int64_t j = 0; j < kSmallBlock; ++j) {
          target[j] = static_cast<float>(static_cast<int8_t>(byte_at(blocks, 2 + j))) * scale;
        }
        break;
      }
      case BlockType::kQ4_0:
      case BlockType::kQ4_1:
      case BlockType::kQ5_0:
      case BlockType::kQ5_1:
        dequantise_small(type, blocks, target);
        break;
      case BlockType::kMxfp4: {
        uint8_t codes[kSmallBlock];
        read_nibbles(blocks + 1, codes);
        const float scale = e8m0_to_float(byte_at(blocks, 0));
        for (int64_t j = 0; j < kSmallBlock; ++j) target[j] = e2m1_to_float(codes[j]) * scale;
        break;
      }
      case BlockType::kQ4K:
      case BlockType::kQ5K:
        dequantise_k(type, blocks, target);
        break;
      case BlockType::kQ6K:
        for (int64_t k = 0; k < kLargeBlock; ++k) {
          target[k] =
              (static_cast<float>(six_bit_code(blocks, k)) - 32.0f) * six_bit_scale(blocks, k / 16);
        }
        break;
    }
  }
}

void unpack_blocks(const BlockRows& rows, UnpackedMatrix& matrix) {
  const BlockSize size = size_of(rows.type);
  const int64_t num_blocks = rows.K / size.columns;
  const int64_t scale_bytes = matrix.format.scale_bytes() / num_blocks;
  uint8_t* codes = matrix.codes.data();
  std::byte* scales = matrix.scales.data();
  for (int64_t n = 0; n < matrix.N; ++n) {
    const std::byte* block = rows.row(n);
    for (int64_t i = 0; i < num_blocks; ++i) {
      read_block(rows.type, block, codes, scales);
      block += size.bytes;
      codes += size.columns;
      scales += scale_bytes;
    }
  }
}

}  // namespace heddle::quant
