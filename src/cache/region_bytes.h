// SPDX-License-Identifier: Apache-2.0
// The regions of a pool, one for each layer and kind of value, lie behind each other in one
// allocation; each begins where a page of the system's memory does.
#pragma once

#include <cstdint>

namespace heddle::cache {

// `bytes`, up to the next whole memory page.
constexpr int64_t region_bytes(int64_t bytes) {
  constexpr int64_t kMemoryPageBytes = 4096;
  return (bytes + kMemoryPageBytes - 1) / kMemoryPageBytes * kMemoryPageBytes;
}

}  // namespace heddle::cache
