// SPDX-License-Identifier: Apache-2.0
// DraftTree: drafts that branch, as a step computes and verifies them. Node 0 is the token of the
// text that they follow, node i + 1 is draft i, and a parent comes before its children. A chain is
// the tree in which each node has one child.
//
//   next_token    1 3 4 5 - -       node 0 -+- 1 - 3 - 5      "the text ... 100", then 11 21 31
//   next_sibling  - 2 - - - -               +- 2 - 4          or 12 23
//
// Li et al., "EAGLE-2", arXiv:2406.16858.
//
// Threading: confined. Cost: assign() O(nodes) and without allocation once its size has been seen;
// child() O(children).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

namespace heddle::speculative {

// Drafts of what may follow a text.
struct Drafts {
  std::vector<TokenId> tokens;

  // For each draft, the earlier draft that it follows; -1: it follows the text. Empty: a chain, in
  // which each follows the one before it.
  std::vector<int32_t> parents;

  void clear() {
    tokens.clear();
    parents.clear();
  }
};

// Whether each follows the one before it.
[[nodiscard]] bool is_chain(std::span<const int32_t> parents);

class DraftTree {
 public:
  // The most nodes of a tree that branches, node 0 included: a mask has one bit for each.
  static constexpr int64_t kMaxNodes = 64;
  static constexpr int32_t kNone = -1;

  // Becomes the tree of these drafts, as Drafts has them. Error: kInvalidArgument naming the draft
  // whose parent does not come before it, or too many nodes.
  Status assign(std::span<const TokenId> drafts, std::span<const int32_t> parents);

  [[nodiscard]] int64_t num_nodes() const { return std::ssize(depths_); }

  // Whether some node has two children; otherwise the tree is a chain.
  [[nodiscard]] bool branches() const { return branches_; }

  // Indexed by node. The token of node 0 is not known here. kNone: no parent.
  [[nodiscard]] std::span<const int32_t> parents() const { return parents_; }

  [[nodiscard]] std::span<const int32_t> next_token() const { return next_token_; }  // first child

  [[nodiscard]] std::span<const int32_t> next_sibling() const { return next_sibling_; }

  [[nodiscard]] std::span<const int32_t> depths() const { return depths_; }

  // Indexed by node: bit j is set if node j is the node itself or one of its ancestors. Empty in a
  // chain.
  [[nodiscard]] std::span<const uint64_t> masks() const { return masks_; }

  [[nodiscard]] TokenId token(int32_t node) const { return tokens_[static_cast<size_t>(node)]; }

  // The first child of a node that has this token.
  [[nodiscard]] int32_t child(int32_t node, TokenId token) const;

  // Goes down from node 0 as long as the tree has what is drawn: `draw(node)` gives the token that
  // follows the node, or nothing where the text ends. Replaces `path` by the nodes passed, node 0
  // first; every node of it has been drawn from, once.
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
