// SPDX-License-Identifier: Apache-2.0
#include "grammar/token_trie.h"

#include <algorithm>

#include "core/check.h"

namespace heddle::grammar {

TokenTrie::TokenTrie(std::vector<Entry> entries) {
  std::ranges::sort(entries);
  nodes_.push_back({});
  std::vector<uint32_t> path = {0};  // nodes from the root to the last inserted node
  std::string_view before;
  for (const auto& [text, token] : entries) {
    HEDDLE_CHECK(text.size() <= 255);
    const auto common =
        static_cast<size_t>(std::ranges::mismatch(before, text).in1 - before.begin());
    while (path.size() > common + 1) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
      path.pop_back();
    }
    for (size_t i = common; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back(
          {.byte = static_cast<uint8_t>(text[i]), .depth = static_cast<uint8_t>(i + 1)});
    }
    Node& node = nodes_[path.back()];
    if (node.num_tokens == 0) node.first_token = static_cast<uint32_t>(tokens_.size());
    ++node.num_tokens;
    tokens_.push_back(token);
    before = text;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
}

}  // namespace heddle::grammar
