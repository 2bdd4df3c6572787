// SPDX-License-Identifier: Apache-2.0
// TokenTrie: the texts of a vocabulary as a trie of bytes, so that a byte that is not allowed
// excludes all tokens that begin with the same bytes.
//
// Threading: immutable; thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include <heddle/request.h>

namespace heddle::grammar {

class TokenTrie {
 public:
  // Nodes are in preorder: the descendants of a node follow it, up to `end`. Node 0 is the root.
  struct Node {
    uint32_t end = 0;
    uint32_t first_token = 0;
    uint16_t num_tokens = 0;  // tokens with exactly this text
    uint8_t byte = 0;         // last byte of the node's text
    uint8_t depth = 0;        // number of bytes of the node's text
  };

  using Entry = std::pair<std::string_view, TokenId>;

  TokenTrie() = default;
  // Texts have at most 255 bytes (checked); tokens with an empty text belong to the root.
  explicit TokenTrie(std::vector<Entry> entries);

  [[nodiscard]] const std::vector<Node>& nodes() const { return nodes_; }

  [[nodiscard]] std::span<const TokenId> tokens(const Node& node) const {
    return std::span(tokens_).subspan(node.first_token, node.num_tokens);
  }

  // Tokens of a node and of all nodes below it.
  [[nodiscard]] std::span<const TokenId> tokens_below(uint32_t index) const {
    uint32_t first = index;  // the last node of each branch has a token
    while (nodes_[first].num_tokens == 0) ++first;
    const uint32_t end = nodes_[index].end;
    const uint32_t begin = nodes_[first].first_token;
    const Node& last = nodes_[end - 1];
    return std::span(tokens_).subspan(begin, last.first_token + last.num_tokens - begin);
  }

 private:
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;
};

}  // namespace heddle::grammar
