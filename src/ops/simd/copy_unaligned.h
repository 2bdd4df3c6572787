// SPDX-License-Identifier: Apache-2.0
// copy_unaligned: memcpy of weights, which lie where their file has them, at any address.
#pragma once

#include <cstddef>
#include <cstring>

namespace heddle::ops::simd {

// Given a float* itself, std::memcpy may take its type for a promise that it is aligned.
inline void copy_unaligned(void* to, const void* from, size_t num_bytes) {
  std::memcpy(to, from, num_bytes);
}

}  // namespace heddle::ops::simd
