// SPDX-License-Identifier: Apache-2.0
#include "request/prefix_hashes.h"

#include <algorithm>

namespace heddle::request {

PrefixHashes::PrefixHashes(std::span<const TokenId> tokens, std::string_view name_space) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : name_space) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hashes_.reserve(tokens.size() / kBlockTokens + 1);
  hashes_.push_back(hash);
  extend(tokens);
}

void PrefixHashes::extend(std::span<const TokenId> tokens) {
  const auto block = static_cast<size_t>(kBlockTokens);
  for (size_t begin = (hashes_.size() - 1) * block; begin + block <= tokens.size();
       begin += block) {
    uint64_t hash = hashes_.back();
    for (const TokenId token : tokens.subspan(begin, block)) hash = extend_hash(hash, token);
    hashes_.push_back(hash);
  }
}

PrefixHash PrefixHashes::of(std::span<const TokenId> tokens) const {
  int64_t count = std::min(num_blocks(), std::ssize(tokens) / kBlockTokens);
  PrefixHash hash{.all = of_blocks(count), .blocks = of_blocks(count)};
  for (int64_t index = count * kBlockTokens; index < std::ssize(tokens); ++index) {
    hash = extend_hash(hash, index, tokens[static_cast<size_t>(index)]);
  }
  return hash;
}

int64_t PrefixHashes::common_prefix(std::span<const TokenId> tokens, const PrefixHashes& other,
                                    std::span<const TokenId> other_tokens) const {
  // Binary search: the first `equal` blocks agree, the first `different` do not or do not exist.
  int64_t equal = 0;
  int64_t different = std::min(num_blocks(), other.num_blocks()) + 1;
  while (different - equal > 1) {
    const int64_t middle = equal + (different - equal) / 2;
    (of_blocks(middle) == other.of_blocks(middle) ? equal : different) = middle;
  }
  // Compares the tokens after the equal blocks one by one.
  const auto begin = static_cast<size_t>(equal * kBlockTokens);
  const auto [end, ignored] =
      std::mismatch(tokens.begin() + static_cast<std::ptrdiff_t>(begin), tokens.end(),
                    other_tokens.begin() + static_cast<std::ptrdiff_t>(begin), other_tokens.end());
  return end - tokens.begin();
}

}  // namespace heddle::request
