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

// Unpacks 32 codes of 4 bits from 16 bytes to `codes`, a byte each.
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

struct ByteScales {
  uint8_t scale;
  uint8_t minimum;
};

// The j-th of eight pairs of 6-bit numbers in 12 bytes.
ByteScales six_bits(const std::byte* b, int64_t j) {
  const unsigned low = byte_at(b, j + 4);
  if (j < 4) return {static_cast<uint8_t>(byte_at(b, j) & 63u), static_cast<uint8_t>(low & 63u)};
  return {static_cast<uint8_t>((low & 15u) | ((unsigned{byte_at(b, j - 4)} >> 6) << 4)),
          static_cast<uint8_t>((low >> 4) | ((unsigned{byte_at(b, j)} >> 6) << 4))};
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

constexpr int64_t kFourBitScales = 4;  // byte offset of the scales in a block of Q4_K and Q5_K
constexpr int64_t kSixBitScales = 192;
constexpr int64_t kSixBitD = 208;

bool has_minimum(BlockType type) {
  return type == BlockType::kQ4_1 || type == BlockType::kQ5_1 || type == BlockType::kQ4K ||
         type == BlockType::kQ5K;
}

// The code that represents 0; for floats and types with minima 0.
uint8_t zero_of(BlockType type) {
  switch (type) {
    case BlockType::kQ8_0:
      return 128;
    case BlockType::kQ4_0:
      return 8;
    case BlockType::kQ5_0:
      return 16;
    case BlockType::kQ6K:
      return 32;
    default:
      return 0;
  }
}

// Unpacks the codes of a block, a byte each; to those of Q8_0, 128 is added.
void read_codes(BlockType type, const std::byte* block, uint8_t* codes) {
  switch (type) {
    case BlockType::kQ8_0:
      for (int64_t j = 0; j < kSmallBlock; ++j) {
        codes[j] = static_cast<uint8_t>(byte_at(block, 2 + j) ^ 128u);
      }
      return;
    case BlockType::kMxfp4:
      return read_nibbles(block + 1, codes);
    case BlockType::kQ4_0:
    case BlockType::kQ4_1:
      return read_nibbles(block + (has_minimum(type) ? 4 : 2), codes);
    case BlockType::kQ5_0:
    case BlockType::kQ5_1: {
      const std::byte* const fifth = block + (has_minimum(type) ? 4 : 2);
      read_nibbles(fifth + 4, codes);
      return add_fifth_bits(fifth, codes);
    }
    case BlockType::kQ4K:
    case BlockType::kQ5K: {
      const bool five_bits = type == BlockType::kQ5K;
      const std::byte* const high = block + 16;
      const std::byte* const low = high + (five_bits ? 32 : 0);
      for (int64_t group = 0; group < 8; ++group) {
        for (int64_t l = 0; l < 32; ++l) {
          const uint8_t both = byte_at(low, group / 2 * 32 + l);
          const unsigned fifth = five_bits ? (byte_at(high, l) >> group) & 1u : 0;
          codes[group * 32 + l] =
              static_cast<uint8_t>((group % 2 == 0 ? both & 15u : both >> 4) | (fifth << 4));
        }
      }
      return;
    }
    case BlockType::kQ6K:
      for (int64_t k = 0; k < kLargeBlock; ++k) codes[k] = six_bit_code(block, k);
      return;
  }
  HEDDLE_CHECK(false && "unknown block type");
}

int64_t group_size_of(BlockType type) { return type == BlockType::kQ6K ? 16 : kSmallBlock; }

float scale_of_group(BlockType type, const std::byte* block, int64_t group) {
  switch (type) {
    case BlockType::kMxfp4:
      return e8m0_to_float(byte_at(block, 0));
    case BlockType::kQ4K:
    case BlockType::kQ5K:
      return half_at(block) * static_cast<float>(six_bits(block + kFourBitScales, group).scale);
    case BlockType::kQ6K:
      return half_at(block + kSixBitD) *
             static_cast<float>(static_cast<int8_t>(byte_at(block, kSixBitScales + group)));
    default:
      return half_at(block);
  }
}

// The number that is added to products of codes and scales; for types without minima -0, which
// changes no number.
float minimum_of_group(BlockType type, const std::byte* block, int64_t group) {
  if (!has_minimum(type)) return -0.0f;
  if (size_of(type).columns == kSmallBlock) return half_at(block + 2);
  return -half_at(block + 2) * static_cast<float>(six_bits(block + kFourBitScales, group).minimum);
}

// Writes scales and minima of the i-th block to their positions in the row of scales.
void read_scales(BlockType type, const std::byte* block, int64_t i, const RowFormat& format,
                 std::byte* row) {
  std::byte* const bytes = row + 2 * format.num_wide_scales();
  switch (format.scale) {
    case ScaleType::kE8M0:
      row[i] = block[0];
      return;
    case ScaleType::kF16:
      std::memcpy(row + 2 * i, block, 2);
      if (format.has_minima) std::memcpy(row + format.minima_begin() + 2 * i, block + 2, 2);
      return;
    case ScaleType::kF32:
      for (int64_t group = 0; group < 16; ++group) {
        const float scale = scale_of_group(type, block, group);
        std::memcpy(row + 4 * (16 * i + group), &scale, sizeof(scale));
      }
      return;
    case ScaleType::kI8Times:
      std::memcpy(row + 2 * i, block + kSixBitD, 2);
      std::memcpy(bytes + 16 * i, block + kSixBitScales, 16);
      return;
    case ScaleType::kU8Times: {
      std::memcpy(row + 2 * i, block, 2);
      // Packed minima are added; those of the file are subtracted.
      std::byte* const dmin = row + format.minima_begin() + 2 * i;
      std::memcpy(dmin, block + 2, 2);
      dmin[1] ^= std::byte{0x80};
      for (int64_t group = 0; group < 8; ++group) {
        const ByteScales pair = six_bits(block + kFourBitScales, group);
        bytes[8 * i + group] = std::byte{pair.scale};
        bytes[format.minima_begin() + 8 * i + group] = std::byte{pair.minimum};
      }
      return;
    }
    default:
      HEDDLE_CHECK(false && "no block type has such scales");
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

std::optional<RowFormat> packed_format(BlockType type, int64_t K, bool on_gpu) {
  if (on_gpu && has_minimum(type)) return std::nullopt;
  RowFormat format{.scale = ScaleType::kF16,
                   .K = K,
                   .group_size = group_size_of(type),
                   .constant_zero = 128,
                   .has_minima = has_minimum(type)};
  switch (type) {
    case BlockType::kQ8_0:
    case BlockType::kQ5_0:
    case BlockType::kQ5_1:
      return format;
    case BlockType::kQ4_0:
    case BlockType::kQ4_1:
      format.code = Code::kU4;
      format.constant_zero = zero_of(type);
      return format;
    case BlockType::kMxfp4:
      format.code = Code::kE2M1;
      format.scale = ScaleType::kE8M0;
      format.constant_zero = 0;
      return format;
    case BlockType::kQ4K:
      format.code = Code::kU4;
      format.scale = ScaleType::kU8Times;
      format.constant_zero = 0;
      return format;
    case BlockType::kQ5K:
      format.scale = ScaleType::kU8Times;
      return format;
    case BlockType::kQ6K:
      format.scale = on_gpu ? ScaleType::kF32 : ScaleType::kI8Times;
      return format;
  }
  HEDDLE_CHECK(false && "unknown block type");
}

void dequantise_blocks(BlockType type, const std::byte* blocks, int64_t num_blocks, float* target) {
  const BlockSize size = size_of(type);
  const int64_t group_size = group_size_of(type);
  const auto zero = static_cast<float>(zero_of(type));
  uint8_t codes[kLargeBlock];
  for (int64_t i = 0; i < num_blocks; ++i, blocks += size.bytes) {
    read_codes(type, blocks, codes);
    for (int64_t k = 0; k < size.columns; target += group_size) {
      const float scale = scale_of_group(type, blocks, k / group_size);
      const float minimum = minimum_of_group(type, blocks, k / group_size);
      for (int64_t j = 0; j < group_size; ++j, ++k) {
        const float value = type == BlockType::kMxfp4 ? e2m1_to_float(codes[k])
                                                      : static_cast<float>(codes[k]) - zero;
        target[j] = value * scale + minimum;
      }
    }
  }
}

void unpack_blocks(const BlockRows& rows, UnpackedMatrix& matrix) {
  const RowFormat& format = matrix.format;
  const BlockSize size = size_of(rows.type);
  const int64_t num_blocks = rows.K / size.columns;
  // 8-bit codes are stored with zero point 128, whatever the file's is.
  const auto shift =
      static_cast<uint8_t>(format.four_bits() ? 0 : format.constant_zero - zero_of(rows.type));
  uint8_t* codes = matrix.codes.data();
  for (int64_t n = 0; n < matrix.N; ++n) {
    const std::byte* block = rows.row(n);
    std::byte* const scales = matrix.scales.data() + n * format.scale_bytes();
    for (int64_t i = 0; i < num_blocks; ++i, block += size.bytes, codes += size.columns) {
      read_codes(rows.type, block, codes);
      for (int64_t k = 0; k < size.columns; ++k) codes[k] = static_cast<uint8_t>(codes[k] + shift);
      read_scales(rows.type, block, i, format, scales);
    }
  }
}

}  // namespace heddle::quant
