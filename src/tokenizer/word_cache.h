// SPDX-License-Identifier: Apache-2.0
// WordCache stores the ids of short words, because words repeat and merging is the slow part.
//
// Direct-mapped: a new word replaces the word in its slot, so the size never changes, and a client
// can at worst make the cache useless. One entry is one cache line.
//
// Threading: confined to one encode call at a time. Memory: kNumEntries * 64 bytes, committed as
// entries are used.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

#include <heddle/request.h>

#include "tokenizer/hash.h"

namespace heddle::tokenizer {

class WordCache {
 public:
  static constexpr size_t kMaxWordBytes = 30;
  static constexpr size_t kMaxIds = 8;
  static constexpr size_t kNumEntries = size_t{1}
                                        << 15;  // 2 MiB: about a core's second-level cache

  // The ids of `word`, which has 1 to kMaxWordBytes bytes; empty if it is not in the cache.
  [[nodiscard]] std::span<const TokenId> find(std::string_view word, uint64_t hash) const {
    const Entry& entry = entries_[index_of(hash)];
    if (entry.length != word.size() ||
        std::memcmp(entry.word.data(), word.data(), word.size()) != 0)
      return {};
    return {entry.ids.data(), entry.num_ids};
  }

  // Stores `word` if it has few enough ids for an entry.
  void insert(std::string_view word, uint64_t hash, std::span<const TokenId> ids) {
    if (ids.size() > kMaxIds) return;
    Entry& entry = entries_[index_of(hash)];
    entry.length = static_cast<uint8_t>(word.size());
    entry.num_ids = static_cast<uint8_t>(ids.size());
    std::memcpy(entry.word.data(), word.data(), word.size());
    std::memcpy(entry.ids.data(), ids.data(), ids.size_bytes());
  }

 private:
  struct alignas(64) Entry {
    uint8_t length = 0;
    uint8_t num_ids = 0;
    std::array<char, kMaxWordBytes> word{};
    std::array<TokenId, kMaxIds> ids{};
  };

  static_assert(sizeof(Entry) == 64);

  static size_t index_of(uint64_t hash) { return static_cast<size_t>(hash) & (kNumEntries - 1); }

  std::unique_ptr<Entry[]> entries_ = std::make_unique<Entry[]>(kNumEntries);
};

}  // namespace heddle::tokenizer
