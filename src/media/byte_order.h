// SPDX-License-Identifier: Apache-2.0
// Reads and compares numbers in files of either byte order. The caller has checked that the bytes
// are there.
//
// Threading: free functions without state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace heddle::media {

[[nodiscard]] inline uint32_t big16(std::span<const uint8_t> bytes, size_t at) {
  return (uint32_t{bytes[at]} << 8) | bytes[at + 1];
}

[[nodiscard]] inline uint32_t big32(std::span<const uint8_t> bytes, size_t at) {
  return (big16(bytes, at) << 16) | big16(bytes, at + 2);
}

[[nodiscard]] inline uint32_t little16(std::span<const uint8_t> bytes, size_t at) {
  return (uint32_t{bytes[at + 1]} << 8) | bytes[at];
}

[[nodiscard]] inline uint32_t little32(std::span<const uint8_t> bytes, size_t at) {
  return (little16(bytes, at + 2) << 16) | little16(bytes, at);
}

// Whether the text has the bytes `expected` at offset `at`; false if it ends before them.
[[nodiscard]] inline bool has_bytes(std::span<const uint8_t> bytes, size_t at,
                                    std::string_view expected) {
  return at <= bytes.size() && bytes.size() - at >= expected.size() &&
         std::memcmp(bytes.data() + at, expected.data(), expected.size()) == 0;
}

}  // namespace heddle::media
