// SPDX-License-Identifier: Apache-2.0
// DraftTree: drafts that branch, as a step computes and verifies them. Node 0 is the token that all
// drafts follow, node i + 1 is draft i, and a parent comes before its children. A chain is a tree
// in which each node has one child.
//
//   next_token    1 3 4 5 - -       node 0 -+- 1 - 3 - 5      "the text ... 100", then 11 21 31
//   next_sibling  - 2 - - - -               +- 2 - 4          or 12 23
//
// Li et al., "EAGLE-2", arXiv:2406.16858.
//
// Threading: thread-confined. Cost: assign() O(nodes), without allocation once its size has been
// seen; child() O(children).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

namespace heddle::speculative {

// Proposed tokens that may follow a text.
struct Drafts {
  std::vector<TokenId> tokens;

  // By draft: the index of the earlier draft that it follows; -1: it follows the text. Empty: a
  // chain, in which each draft follows the one before it.
  std::vector<int32_t> parents;

  void clear() {
    tokens.clear();
    parents.clear();
  }
};

// Whether each draft follows the one before it.
[[nodiscard]] bool is_chain(std::span<const int32_t> parents);

class DraftTree {
 public:
  // Most nodes of a tree that branches, node 0 included: a mask has one bit for each.
  static constexpr int64_t kMaxNodes = 64;
  static constexpr int32_t kNone = -1;

  // Builds the tree of these drafts, in the form of Drafts. Error: kInvalidArgument, with the draft
  // whose parent does not come before it, or for too many nodes.
  Status assign(std::span<const TokenId> drafts, std::span<const int32_t> parents);

  [[nodiscard]] int64_t num_nodes() const { return std::ssize(depths_); }

  // Whether some node has two children; otherwise the tree is a chain.
  [[nodiscard]] bool branches() const { return branches_; }

  // The parent of each node; kNone: it has none. (The tree does not know the token of node 0.)
  [[nodiscard]] std::span<const int32_t> parents() const { return parents_; }

  // First child of each node.
  [[nodiscard]] std::span<const int32_t> next_token() const { return next_token_; }

  [[nodiscard]] std::span<const int32_t> next_sibling() const { return next_sibling_; }

  [[nodiscard]] std::span<const int32_t> depths() const { return depths_; }

  // By node: bit j is set if node j is the node itself or one of its ancestors. Empty in a chain.
  [[nodiscard]] std::span<const uint64_t> masks() const { return masks_; }

  [[nodiscard]] TokenId token(int32_t node) const { return tokens_[static_cast<size_t>(node)]; }

  // The first child of `node` with this token; kNone if there is none.
  [[nodiscard]] int32_t child(int32_t node, TokenId token) const;

  // Walks down from node 0 while the tree has the drawn tokens. `draw(node)` returns the token that
  // follows the node, or nothing where the text ends. Replaces `path` by the nodes visited, node 0
  // first. Each of them is drawn from exactly once.
  template <typename Draw>
  void walk(const Draw& draw, std::vector<int32_t>& path) const {
    path.assign(1, 0);
    for (;;) {
      const std::optional<TokenId> drawn = draw(path.back());
      const int32_t next = drawn ? child(path.back(), *drawn) : kNone;
      if (next == kNone) return;
      path.push_back(next);
    }
  }

 private:
  std::vector<TokenId> tokens_;
  std::vector<int32_t> parents_, next_token_, next_sibling_, depths_;
  std::vector<uint64_t> masks_;
  bool branches_ = false;
};

}  // namespace heddle::speculative
