// SPDX-License-Identifier: Apache-2.0
// TreeGrowth: a tree of drafts grown level by level from what a network finds likely. Each level
// goes on from the `topk` best branches of the one before; a branch is as good as the product of
// the probabilities on its way. Of all candidates seen, the best become the tree.
//
//   begin(topk candidates) -> [branches() -> add_level(topk for each branch)]* -> select()
//
// Equal scores go to the candidate that was seen first: a parent never scores lower than its
// children and comes before them, so that what is selected hangs together. Candidates without a
// score (a network whose logits are not numbers) are never selected, nor what follows a candidate
// that is not.
//
// Li et al., "EAGLE-2", arXiv:2406.16858.
//
// Threading: confined. Cost: a level sorts topk^2 candidates, select() all of them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "speculative/draft_tree.h"

namespace heddle::speculative {

// A token that may follow, and how likely a network finds it.
struct Candidate {
  TokenId token = 0;
  float probability = 0;
};

// How large trees are.
struct TreeShape {
  int32_t topk = 1;        // branches of a level; 1: chains
  int32_t num_steps = 0;   // levels
  int32_t num_drafts = 0;  // nodes without the root

  // Candidates that all levels have together.
  [[nodiscard]] int64_t num_candidates() const {
    return topk + int64_t{num_steps - 1} * topk * topk;
  }

  // Branches that the network extends, in all levels.
  [[nodiscard]] int64_t num_branches() const { return int64_t{num_steps - 1} * topk; }
};

class TreeGrowth {
 public:
  // A branch of the last level: its token follows that of branch `from` of the level before.
  struct Branch {
    TokenId token = 0;
    int32_t from = 0;
  };

  // Forgets everything and takes the first level; its size is topk.
  void begin(std::span<const Candidate> top);

  // The branches that the next level continues: at most topk.
  [[nodiscard]] std::span<const Branch> branches() const { return branches_; }

  // The next level: topk candidates after each branch, in the order of branches().
  void add_level(std::span<const Candidate> top);

  // Replaces `drafts` by the best `count` candidates of all levels, or all there are.
  void select(int64_t count, Drafts& drafts);

  // Indexed by candidate, in the order in which levels were added.
  [[nodiscard]] std::span<const float> scores() const { return scores_; }

  [[nodiscard]] std::span<const TokenId> tokens() const { return tokens_; }

  // Element s / topk is the parent of the candidates of index s; -1: the text itself.
  [[nodiscard]] std::span<const int32_t> parent_list() const { return parent_list_; }

  // The candidates that the last select() chose, ascending.
  [[nodiscard]] std::span<const int32_t> selected() const { return selected_; }

 private:
  size_t topk_ = 0;
  std::vector<float> scores_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> parent_list_;
  std::vector<Branch> branches_;
  std::vector<int32_t> branch_candidates_;  // candidate of each entry of branches_
  std::vector<int32_t> order_;
  std::vector<int32_t> selected_;
};

// The `count` largest probabilities of a softmax over `logits`, largest first, equal ones by index;
// `token` is the index. Fewer where logits are not numbers: then there are none.
void most_probable(std::span<const float> logits, int64_t count, std::vector<Candidate>& top);

}  // namespace heddle::speculative
