// SPDX-License-Identifier: Apache-2.0
// VocabularyMasks: computes which tokens of a vocabulary may follow at a place of a grammar.
//
// Most of a mask does not depend on the stack below a place: a token that stays inside the open
// string, for example, is allowed whatever the string belongs to. That part is computed once for
// each kind of place (Automaton::signatures()), for all grammars together, and cached. Only tokens
// that leave the frame remain, such as `",`, which leaves a string: these few are tried on the
// stack.
//
// Threading: thread-safe.
#pragma once

#include <bitset>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <heddle/request.h>

#include "core/mutex.h"
#include "grammar/automaton.h"
#include "grammar/token_trie.h"

namespace heddle::grammar {

// Longer tokens (mostly runs of blanks and of dashes) are never allowed. Shorter ones spell the
// same text, and masks and signatures need to look ahead only this far.
inline constexpr size_t kMaxTokenBytes = 32;

// The part of a mask that does not depend on the stack.
struct FrameMask {
  std::vector<uint32_t> allowed;  // one bit per token: it stays in the frame, or ends exactly with
                                  // it

  // Tokens that leave the frame before they end: the bytes after that point. Where such tokens are
  // many, the node of the vocabulary's trie is named, and all tokens below that node are meant.
  TokenTrie leaving;
  std::vector<uint32_t> leaving_nodes;
};

// The mask of another place, which is valid here for tokens that begin with certain bytes. Both
// places are in the outermost rule, which no token can leave.
struct MaskModel {
  std::shared_ptr<const FrameMask> mask;
  std::bitset<256> is_alike;
};

class VocabularyMasks {
 public:
  // `token_bytes[i]` is the text of token i, or special_token_bytes() of it, which only a grammar
  // that names the token allows; empty for a token that no grammar allows. `ending_tokens` are
  // allowed where an answer may end. Elsewhere such a token is text if it has one byte, because
  // there may be no other token for that byte, and otherwise not allowed. Cost: about 0.1 s and 10
  // MB for 150,000 tokens.
  VocabularyMasks(std::vector<std::string> token_bytes, std::vector<TokenId> ending_tokens);

  [[nodiscard]] int64_t vocab_size() const { return static_cast<int64_t>(token_bytes_.size()); }

  [[nodiscard]] size_t num_words() const { return (token_bytes_.size() + 31) / 32; }

  [[nodiscard]] std::string_view bytes(TokenId token) const {
    return token_bytes_[static_cast<size_t>(token)];
  }

  // As bytes(), but empty for special tokens.
  [[nodiscard]] std::string_view text(TokenId token) const {
    return is_special_token(bytes(token)) ? std::string_view() : bytes(token);
  }

  // Whether a grammar may name the special token that is spelled `text`. A token that ends an
  // answer is not included: it is allowed where an answer may end and nowhere else.
  [[nodiscard]] bool has_special_token(std::string_view text) const;

  [[nodiscard]] std::span<const TokenId> ending_tokens() const { return ending_tokens_; }

  [[nodiscard]] const TokenTrie& trie() const { return trie_; }

  // A state, and the count of its rule.
  struct Place {
    StateId state = 0;
    uint32_t count = 0;
  };

  // The cached mask with this signature; null if there is none. Cost: a look-up.
  [[nodiscard]] std::shared_ptr<const FrameMask> find(uint64_t signature) HEDDLE_EXCLUDES(mutex_);

  // Computes and caches the mask of a place's edges. Cost: up to some milliseconds.
  [[nodiscard]] std::shared_ptr<const FrameMask> make(const Automaton& automaton, Place place,
                                                      uint64_t signature,
                                                      const std::optional<MaskModel>& model)
      HEDDLE_EXCLUDES(mutex_);

  [[nodiscard]] size_t num_kept() const;

 private:
  // The most cached masks: some 40 MB at 150,000 tokens.
  static constexpr size_t kMaxKeptMasks = 2048;

  struct Kept {
    std::shared_ptr<const FrameMask> mask;
    std::list<uint64_t>::iterator use;
  };

  [[nodiscard]] FrameMask make_frame_mask(const Automaton& automaton, Place place,
                                          const std::optional<MaskModel>& model) const;

  const std::vector<std::string> token_bytes_;
  const std::vector<TokenId> ending_tokens_;
  const TokenTrie trie_;
  std::vector<std::string_view> special_tokens_;  // views of the special tokens' entries in
                                                  // token_bytes_, sorted

  mutable Mutex mutex_;
  std::unordered_map<uint64_t, Kept> kept_ HEDDLE_GUARDED_BY(mutex_);
  std::list<uint64_t> uses_ HEDDLE_GUARDED_BY(mutex_);  // signatures, most recently used first
};

}  // namespace heddle::grammar
