// SPDX-License-Identifier: Apache-2.0
// A fast 64-bit hash of short byte strings, for the vocabulary and the word cache.
//
// Not safe against adversaries: a table whose keys a client chooses needs another protection.
// Cost: a few nanoseconds up to 16 bytes, then about 8 bytes a nanosecond.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace heddle::tokenizer {

inline uint64_t load_u64(const char* bytes) {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

inline uint32_t load_u32(const char* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Combines the two halves of the 128-bit product, so that every input bit affects every output bit.
inline uint64_t fold_multiply(uint64_t a, uint64_t b) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

inline uint64_t hash_pair(uint32_t left, uint32_t right) {
  return fold_multiply((static_cast<uint64_t>(left) << 32 | right) ^ 0x9E3779B97F4A7C15u,
                       0xD6E8FEB86659FD93u);
}

inline uint64_t hash_bytes(std::string_view text) {
  constexpr uint64_t kFirst = 0x9E3779B97F4A7C15u;   // odd constants with mixed bits: the golden
  constexpr uint64_t kSecond = 0xC2B2AE3D27D4EB4Fu;  // ratio and a prime
  const char* bytes = text.data();
  size_t length = text.size();
  uint64_t state = kFirst ^ (length * kSecond);
  while (length > 16) {
    state = fold_multiply(load_u64(bytes) ^ state, load_u64(bytes + 8) ^ kSecond);
    bytes += 16;
    length -= 16;
  }
  uint64_t a = 0;
  uint64_t b = 0;
  if (length >= 8) {  // the two loads may overlap
    a = load_u64(bytes);
    b = load_u64(bytes + length - 8);
  } else if (length >= 4) {
    a = load_u32(bytes);
    b = load_u32(bytes + length - 4);
  } else if (length > 0) {
    const auto byte = [bytes](size_t i) {
      return static_cast<uint64_t>(static_cast<unsigned char>(bytes[i]));
    };
    a = byte(0) << 16 | byte(length / 2) << 8 | byte(length - 1);
  }
  return fold_multiply(fold_multiply(a ^ state, b ^ kSecond) ^ kFirst, kSecond ^ state);
}

}  // namespace heddle::tokenizer
