// SPDX-License-Identifier: Apache-2.0
// PrefixHashes: one hash for every 64 tokens a prompt begins with, so that two long prompts can be
// compared without reading them: prefixes of equal hash are taken for equal.
//
// Different prefixes share a hash once in 2^64 pairs. Who asks must be able to live with that: this
// is for deciding whom to wait for, never for finding what is reused.
//
// Threading: immutable after construction.
// Cost:      construction reads every token once, some 2 ns each; common_prefix() O(log tokens).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heddle/request.h>

namespace heddle::request {

class PrefixHashes {
 public:
  static constexpr int64_t kBlockTokens = 64;

  explicit PrefixHashes(std::span<const TokenId> prompt);

  // How many tokens both begin with. `tokens` and `other_tokens` begin with the prompts that were
  // hashed; what follows these is compared itself.
  [[nodiscard]] int64_t common_prefix(std::span<const TokenId> tokens, const PrefixHashes& other,
                                      std::span<const TokenId> other_tokens) const;

 private:
  std::vector<uint64_t> hashes_;  // of the first 64, 128, ... tokens
};

}  // namespace heddle::request
