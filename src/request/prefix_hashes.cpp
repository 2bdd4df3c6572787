// SPDX-License-Identifier: Apache-2.0
#include "request/prefix_hashes.h"

#include <algorithm>

namespace heddle::request {
namespace {

// For a given hash, different tokens give different hashes, and the other way round.
uint64_t extend(uint64_t hash, TokenId token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

}  // namespace

PrefixHashes::PrefixHashes(std::span<const TokenId> prompt) {
  hashes_.reserve(prompt.size() / kBlockTokens);
  uint64_t hash = 0;
  while (prompt.size() >= static_cast<size_t>(kBlockTokens)) {
    for (const TokenId token : prompt.first(kBlockTokens)) hash = extend(hash, token);
    hashes_.push_back(hash);
    prompt = prompt.subspan(kBlockTokens);
  }
}

int64_t PrefixHashes::common_prefix(std::span<const TokenId> tokens, const PrefixHashes& other,
                                    std::span<const TokenId> other_tokens) const {
  // Blocks [0, equal) are equal, block `different` is not or does not exist.
  const auto both = static_cast<int64_t>(std::min(hashes_.size(), other.hashes_.size()));
  int64_t equal = 0;
  int64_t different = both + 1;
  while (different - equal > 1) {
    const int64_t middle = equal + (different - equal) / 2;
    const auto last = static_cast<size_t>(middle - 1);
    (hashes_[last] == other.hashes_[last] ? equal : different) = middle;
  }
  // What is left of the first block that differs or, behind the hashed part, of the tokens.
  const auto begin = static_cast<size_t>(equal * kBlockTokens);
  const auto [end, ignored] =
      std::mismatch(tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.end(),
                    other_tokens.begin() + static_cast<std::ptrdiff_t>(begin), other_tokens.end());
  return end - tokens.begin();
}

}  // namespace heddle::request
