// SPDX-License-Identifier: Apache-2.0
// TreeGrowth: grows a tree of drafts level by level from the tokens that a network finds likely.
// Each level continues from the `topk` best branches of the level before; the score of a branch is
// the product of the probabilities on its path. The best of all candidates become the tree.
//
//   begin(topk candidates) -> [branches() -> add_level(topk for each branch)]* -> select()
//
// Of equal scores the candidate seen first wins. A parent never scores lower than its children and
// comes before them, so selected candidates are connected. Candidates without a score (logits that
// are not numbers) are never selected, nor are candidates that follow one not selected.
//
// Li et al., "EAGLE-2", arXiv:2406.16858.
//
// Threading: thread-confined. Cost: a level sorts topk^2 candidates, select() all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "speculative/draft_tree.h"

namespace heddle::speculative {

// A token that may follow, with the probability that a network gives it.
struct Candidate {
  TokenId token = 0;
  float probability = 0;
};

// The size of trees.
struct TreeShape {
  int32_t topk = 1;        // branches per level; 1: chains
  int32_t num_steps = 0;   // number of levels
  int32_t num_drafts = 0;  // nodes of the tree without the root

  // Number of candidates of all levels together.
  [[nodiscard]] int64_t num_candidates() const {
    return topk + int64_t{num_steps - 1} * topk * topk;
  }

  // Number of branches that the network extends, in all levels together.
  [[nodiscard]] int64_t num_branches() const { return int64_t{num_steps - 1} * topk; }
};

class TreeGrowth {
 public:
  // A branch of the last level: its token follows branch `from` of the level before.
  struct Branch {
    TokenId token = 0;
    int32_t from = 0;
  };

  // Starts a new tree with the candidates of its first level; topk is their number.
  void begin(std::span<const Candidate> top);

  // The branches that the next level continues: at most topk.
  [[nodiscard]] std::span<const Branch> branches() const { return branches_; }

  // Adds a level: topk candidates for each branch, in the order of branches().
  void add_level(std::span<const Candidate> top);

  // Replaces `drafts` by the best `count` candidates of all levels, or by all if there are fewer.
  void select(int64_t count, Drafts& drafts);

  // Score and token of each candidate, in the order in which they were added.
  [[nodiscard]] std::span<const float> scores() const { return scores_; }

  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }

  // Entry i / topk is the parent of candidate i; -1: it follows the text itself.
  [[nodiscard]] std::span<const int32_t> parent_list() const { return parent_list_; }

  // Indices of the candidates that the last select() chose, ascending.
  [[nodiscard]] std::span<const int32_t> selected() const { return selected_; }

 private:
  size_t topk_ = 0;
  std::vector<float> scores_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> parent_list_;
  std::vector<Branch> branches_;
  std::vector<int32_t> branch_candidates_;  // by branch: its index among the candidates
  std::vector<int32_t> order_;
  std::vector<int32_t> selected_;
};

// The `count` largest probabilities of a softmax over `logits`, the largest first, equal ones by
// index; `token` is the index. Empty if logits are not numbers.
void most_probable(std::span<const float> logits, int64_t count, std::vector<Candidate>& top);

}  // namespace heddle::speculative
