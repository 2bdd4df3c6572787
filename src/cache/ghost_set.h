// SPDX-License-Identifier: Apache-2.0
// GhostSet: the hashes of prefixes at which sequences could once resume, until that was evicted. A
// prompt that finds one there would have been a hit, had there been more memory.
//
// A table of fixed size in which a newer hash takes the place of an older one: ghosts are forgotten
// after a few times the pool has been filled, and never take more memory.
//
// Threading: confined to the engine thread. Cost: O(1); nothing is allocated after construction.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace heddle::cache {

class GhostSet {
 public:
  // Room for about `wanted` hashes, 8 to 512 KiB.
  explicit GhostSet(int64_t wanted)
      : hashes_(std::bit_ceil(static_cast<size_t>(std::clamp<int64_t>(wanted, 1 << 10, 1 << 16)))) {
  }

  void add(uint64_t hash) { place(hash) = hash; }

  void remove(uint64_t hash) {
    if (contains(hash)) place(hash) = 0;
  }

  // False for 0.
  [[nodiscard]] bool contains(uint64_t hash) const {
    return hash != 0 && hashes_[index(hash)] == hash;
  }

  void clear() { std::fill(hashes_.begin(), hashes_.end(), 0); }

 private:
  [[nodiscard]] size_t index(uint64_t hash) const { return hash & (hashes_.size() - 1); }

  uint64_t& place(uint64_t hash) { return hashes_[index(hash)]; }

  std::vector<uint64_t> hashes_;  // 0: none
};

}  // namespace heddle::cache
