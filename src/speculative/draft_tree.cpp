// SPDX-License-Identifier: Apache-2.0
#include "speculative/draft_tree.h"

#include <fmt/format.h>

namespace heddle::speculative {

bool is_chain(std::span<const int32_t> parents) {
  for (size_t i = 0; i < parents.size(); ++i) {
    if (parents[i] != static_cast<int32_t>(i) - 1) return false;
  }
  return true;
}

Status DraftTree::assign(std::span<const TokenId> drafts, std::span<const int32_t> parents) {
  const size_t num_nodes = drafts.size() + 1;
  branches_ = !is_chain(parents);
  if (!parents.empty() && parents.size() != drafts.size()) {
    return invalid_argument(
        fmt::format("{} drafts have {} parents", drafts.size(), parents.size()));
  }
  if (branches_ && std::ssize(drafts) + 1 > kMaxNodes) {
    return invalid_argument(
        fmt::format("a tree of {} drafts, at most {} fit", drafts.size(), kMaxNodes - 1));
  }
  tokens_.assign(1, TokenId{0});
  tokens_.insert(tokens_.end(), drafts.begin(), drafts.end());
  parents_.assign(1, kNone);
  depths_.assign(1, 0);
  masks_.clear();
  if (branches_) masks_.push_back(1);
  for (size_t i = 0; i < drafts.size(); ++i) {
    const int32_t parent = branches_ ? parents[i] + 1 : static_cast<int32_t>(i);
    if (parent < 0 || parent > static_cast<int32_t>(i)) {
      return invalid_argument(
          fmt::format("draft {} follows draft {}, which does not come before it", i, parent - 1));
    }
    parents_.push_back(parent);
    depths_.push_back(depths_[static_cast<size_t>(parent)] + 1);
    if (branches_) masks_.push_back(masks_[static_cast<size_t>(parent)] | uint64_t{1} << (i + 1));
  }
  next_token_.assign(num_nodes, kNone);
  next_sibling_.assign(num_nodes, kNone);
  for (size_t node = drafts.size(); node > 0; --node) {
    int32_t& first = next_token_[static_cast<size_t>(parents_[node])];
    next_sibling_[node] = first;
    first = static_cast<int32_t>(node);
  }
  return {};
}

int32_t DraftTree::child(int32_t node, TokenId token) const {
  int32_t next = next_token_[static_cast<size_t>(node)];
  while (next != kNone && tokens_[static_cast<size_t>(next)] != token) {
    next = next_sibling_[static_cast<size_t>(next)];
  }
  return next;
}

}  // namespace heddle::speculative
