// SPDX-License-Identifier: Apache-2.0
// GhostSet: the hashes of prefixes at which sequences could once resume, until that was evicted. A
// prompt that finds one there would have been a hit, had there been more memory.
//
// A prompt is asked about block by block (request/prefix_hashes.h), so that it need not be hashed
// again at every token: offsets() tells where behind a block prefixes may have ended.
//
// Tables of fixed size in which what is newer takes the place of what is older: ghosts are
// forgotten after a few times the pool has been filled, and never take more memory.
//
// Threading: confined to the engine thread. Cost: O(1); nothing is allocated after construction.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "request/prefix_hashes.h"

namespace heddle::cache {

class GhostSet {
 public:
  // Room for about `wanted` hashes, 24 to 1536 KiB.
  explicit GhostSet(int64_t wanted)
      : hashes_(std::bit_ceil(static_cast<size_t>(std::clamp<int64_t>(wanted, 1 << 10, 1 << 16)))),
        ends_(hashes_.size()) {}

  void add(const request::PrefixHash& hash, int64_t num_tokens) {
    hashes_[index(hash.all)] = hash.all;
    Ends& ends = ends_[index(hash.blocks)];
    if (ends.blocks != hash.blocks) ends = {.blocks = hash.blocks};
    ends.offsets |= uint64_t{1} << num_tokens % request::PrefixHashes::kBlockTokens;
  }

  void remove(const request::PrefixHash& hash) {
    if (contains(hash.all)) hashes_[index(hash.all)] = 0;
  }

  // False for 0.
  [[nodiscard]] bool contains(uint64_t hash) const {
    return hash != 0 && hashes_[index(hash)] == hash;
  }

  // Bit n: there may be a prefix of n tokens more than the whole blocks of this hash.
  [[nodiscard]] uint64_t offsets(uint64_t blocks) const {
    const Ends& ends = ends_[index(blocks)];
    return ends.blocks == blocks ? ends.offsets : 0;
  }

  void clear() {
    std::fill(hashes_.begin(), hashes_.end(), 0);
    std::fill(ends_.begin(), ends_.end(), Ends{});
  }

 private:
  struct Ends {
    uint64_t blocks = 0;
    uint64_t offsets = 0;
  };

  [[nodiscard]] size_t index(uint64_t hash) const { return hash & (hashes_.size() - 1); }

  std::vector<uint64_t> hashes_;  // 0: none
  std::vector<Ends> ends_;
};

static_assert(request::PrefixHashes::kBlockTokens <= 64, "a bit for every offset");

}  // namespace heddle::cache
