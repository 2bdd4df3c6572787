// SPDX-License-Identifier: Apache-2.0
#include "grammar/spelling.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/check.h"
#include "grammar/nfa.h"
#include "grammar/vocabulary_masks.h"

namespace heddle::grammar {

namespace {

constexpr TokenId kNoToken = std::numeric_limits<TokenId>::max();

// The tokens that occur in a text, by their first byte and their length.
class TokensWithin {
 public:
  TokensWithin(const TokenTrie& trie, std::string_view text) {
    const auto& nodes = trie.nodes();
    for (size_t begin = 0; begin < text.size(); ++begin) {
      const size_t longest = std::min(text.size() - begin, kMaxTokenBytes);
      std::array<TokenId, kMaxTokenBytes + 1>& row = tokens_[begin];
      row.fill(kNoToken);
      uint32_t node = 0;
      for (size_t length = 1; length <= longest; ++length) {
        const auto byte = static_cast<uint8_t>(text[begin + length - 1]);
        uint32_t child = node + 1;  // children are sorted by their bytes
        while (child < nodes[node].end && nodes[child].byte < byte) child = nodes[child].end;
        if (child >= nodes[node].end || nodes[child].byte != byte) break;
        node = child;
        // Uses the last token: if SentencePiece has two tokens for a byte, the first one is the
        // byte fallback for unknown characters.
        const auto same = trie.tokens(nodes[node]);
        if (!same.empty()) row[length] = same.back();
      }
    }
  }

  [[nodiscard]] TokenId token(size_t begin, size_t end) const {
    return end - begin > kMaxTokenBytes ? kNoToken : tokens_[begin][end - begin];
  }

 private:
  std::array<std::array<TokenId, kMaxTokenBytes + 1>, kMaxSpelledBytes> tokens_;
};

}  // namespace

void spell(const TokenTrie& trie, std::string_view text, std::vector<TokenId>& tokens) {
  HEDDLE_CHECK(text.size() <= kMaxSpelledBytes);
  const TokensWithin within(trie, text);
  std::array<size_t, kMaxSpelledBytes + 1> cuts;  // piece i is between cuts i and i + 1
  size_t num_pieces = 0;
  size_t end = 0;
  while (end < text.size()) {
    size_t last = end;  // index of the cut at the end of the piece
    if (text[end] == kSpecialTokenByte) last = text.find(kSpecialTokenByte, end + 1);
    if (last == std::string_view::npos) break;
    cuts[num_pieces++] = end;
    end = last + 1;
  }
  cuts[num_pieces] = end;
  while (true) {
    TokenId lowest = kNoToken;
    size_t joined = 0;
    for (size_t i = 0; i + 1 < num_pieces; ++i) {
      const TokenId token = within.token(cuts[i], cuts[i + 2]);
      if (token >= lowest) continue;
      lowest = token;
      joined = i;
    }
    if (lowest == kNoToken) break;
    std::copy(cuts.begin() + static_cast<ptrdiff_t>(joined) + 2,
              cuts.begin() + static_cast<ptrdiff_t>(num_pieces) + 1,
              cuts.begin() + static_cast<ptrdiff_t>(joined) + 1);
    --num_pieces;
  }
  for (size_t i = 0; i < num_pieces; ++i) {
    const TokenId token = within.token(cuts[i], cuts[i + 1]);
    if (token == kNoToken) return;
    tokens.push_back(token);
  }
}

}  // namespace heddle::grammar
