// SPDX-License-Identifier: Apache-2.0
// How far two token sequences agree. memcmp runs over blocks that most often agree, and the plain
// loop only over the block that does not: 32k equal tokens take a few microseconds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>

#include <heddle/request.h>

namespace heddle::cache {

[[nodiscard]] inline int64_t shared_prefix_length(std::span<const TokenId> a,
                                                  std::span<const TokenId> b) {
  constexpr size_t kBlock = 256;  // 1 KiB: well inside the nearest cache
  const size_t size = std::min(a.size(), b.size());
  size_t index = 0;
  while (index + kBlock <= size &&
         std::memcmp(&a[index], &b[index], kBlock * sizeof(TokenId)) == 0) {
    index += kBlock;
  }
  while (index < size && a[index] == b[index]) ++index;
  return static_cast<int64_t>(index);
}

}  // namespace heddle::cache
