// SPDX-License-Identifier: Apache-2.0
// GhostSet: the hashes of evicted prefixes at which sequences could have resumed. A prompt that
// finds one here would have been a cache hit with more memory.
//
// deepest() reads a prompt block by block (request/prefix_hashes.h), so that it need not be hashed
// again at every token: offsets() says how many tokens after a block evicted prefixes may have
// ended.
//
// The tables have a fixed size and newer entries replace older ones. So ghosts are forgotten after
// the pool was filled a few times, and memory does not grow.
//
// Threading: confined to the engine thread. Cost: O(1); nothing is allocated after construction.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <vector>

#include <heddle/request.h>

#include "core/check.h"
#include "request/prefix_hashes.h"

namespace heddle::cache {

class GhostSet {
 public:
  // `wanted`: number of hashes to hold, about; the tables take 24 to 1536 KiB.
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

  // Always false for hash 0.
  [[nodiscard]] bool contains(uint64_t hash) const {
    return hash != 0 && hashes_[index(hash)] == hash;
  }

  // Bit n is set if a prefix may end n tokens after the whole blocks with this hash.
  [[nodiscard]] uint64_t offsets(uint64_t blocks) const {
    const Ends& ends = ends_[index(blocks)];
    return ends.blocks == blocks ? ends.offsets : 0;
  }

  // Length of the longest prefix of the tokens in the set that is longer than `above`; `above` if
  // there is none. `hashes` are those of all whole blocks of the tokens (checked). Cost: O(blocks
  // beyond `above`), one table lookup each.
  [[nodiscard]] int64_t deepest(std::span<const TokenId> tokens,
                                const request::PrefixHashes& hashes, int64_t above) const {
    constexpr int64_t kBlock = request::PrefixHashes::kBlockTokens;
    const int64_t most = std::ssize(tokens);
    HEDDLE_CHECK_GE(hashes.num_blocks(), most / kBlock);
    for (int64_t block = most / kBlock; block >= above / kBlock; --block) {
      uint64_t hash = hashes.of_blocks(block);
      uint64_t ends = offsets(hash);
      int64_t found = 0;
      for (int64_t end = block * kBlock; ends != 0; ends >>= 1) {
        if ((ends & 1) != 0 && contains(hash)) found = end;
        if (end == most) break;
        hash = request::extend_hash(hash, tokens[static_cast<size_t>(end++)]);
      }
      if (found > above) return found;
    }
    return above;
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

  std::vector<uint64_t> hashes_;  // hash table by index(hash); 0: empty entry
  std::vector<Ends> ends_;
};

static_assert(request::PrefixHashes::kBlockTokens <= 64, "a bit for every offset");

}  // namespace heddle::cache
