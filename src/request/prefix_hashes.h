// SPDX-License-Identifier: Apache-2.0
// PrefixHashes: hashes of the prefixes of a sequence, one for every 64 tokens, so that long
// sequences can be compared without reading them and recognised when they come again.
//
// By accident different prefixes share a hash once in 2^64 pairs. But the function has no secret,
// so a client can construct such pairs. Hashes therefore decide only which sequence waits for
// which, and count what was evicted; they never decide which KV rows are reused.
//
// Threading: thread-compatible.
// Cost:      every token is hashed once, in some 2 ns; common_prefix() is O(log tokens), of()
// hashes
//            at most 63 tokens.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <heddle/request.h>

namespace heddle::request {

// Hash of the first tokens of a text in a namespace.
struct PrefixHash {
  uint64_t all = 0;     // hash of all tokens
  uint64_t blocks = 0;  // hash of the whole 64-token blocks only

  bool operator==(const PrefixHash&) const = default;
};

class PrefixHashes {
 public:
  static constexpr int64_t kBlockTokens = 64;

  explicit PrefixHashes(std::span<const TokenId> tokens, std::string_view name_space = {});

  // Hashes more of the sequence. `tokens` must begin with the tokens hashed so far.
  void extend(std::span<const TokenId> tokens);

  [[nodiscard]] int64_t num_blocks() const { return static_cast<int64_t>(hashes_.size()) - 1; }

  // Hash of the first `count` blocks; `count` is at most num_blocks().
  [[nodiscard]] uint64_t of_blocks(int64_t count) const {
    return hashes_[static_cast<size_t>(count)];
  }

  // The hash of `tokens`, which agree with the tokens hashed here as far as both go.
  [[nodiscard]] PrefixHash of(std::span<const TokenId> tokens) const;

  // Number of tokens that both sequences have in common at their beginning. `tokens` and
  // `other_tokens` are the whole sequences; tokens beyond the hashed blocks are compared directly.
  // Both have the same namespace.
  [[nodiscard]] int64_t common_prefix(std::span<const TokenId> tokens, const PrefixHashes& other,
                                      std::span<const TokenId> other_tokens) const;

 private:
  std::vector<uint64_t> hashes_;  // hashes of the first 0, 64, 128, ... tokens
};

// Extends a hash by one token. For a given hash, different tokens give different hashes; for a
// given token, different hashes do.
[[nodiscard]] inline uint64_t extend_hash(uint64_t hash, TokenId token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 32);
}

// Extends `hash`, the hash of `num_tokens` tokens, by one token.
[[nodiscard]] inline PrefixHash extend_hash(PrefixHash hash, int64_t num_tokens, TokenId token) {
  hash.all = extend_hash(hash.all, token);
  if ((num_tokens + 1) % PrefixHashes::kBlockTokens == 0) hash.blocks = hash.all;
  return hash;
}

}  // namespace heddle::request
