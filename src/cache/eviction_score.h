// SPDX-License-Identifier: Apache-2.0
// EvictionScore: what a node is worth keeping for, as a key of EvictionOrder.
//
// EvictionPolicy::kLru orders by the last use. EvictionPolicy::kFlops orders by
//
//     reuse * (F(p) - F(q)) / bytes,       F(L) = flops_per_token * L + flops_per_pair * L^2,
//
// the work that is lost per byte that becomes free: p is the depth of the state, q that of the
// nearest state above, where a sequence would resume instead; the bytes of a leaf include its KV,
// because nothing below a lost leaf keeps it. `reuse` counts uses that fade with time (UseCount).
// After Pan et al., "Marconi: Prefix Caching for the Era of Hybrid LLMs", arXiv:2411.19379.
//
// A leaf is the tail of a conversation, and where edges fork prompts part: both are likely places
// to resume. In the middle of a chain nobody forked from, a sequence resumes only if it leaves the
// chain for the first time there. Such states weigh kMiddleOfChain; they go first, the densest
// first, because losing one raises the loss that the next one down would be.
//
// The key is the logarithm of the score seen from tick 0: it changes only with the node.
#pragma once

#include "cache/eviction_order.h"
#include "cache/prefix_tree_options.h"

namespace heddle::cache {

struct PrefixNode;

class EvictionScore {
 public:
  // A use halves its weight every `half_life` ticks of the tree's clock.
  EvictionScore(const PrefixTreeOptions& options, double half_life)
      : options_(options), half_life_(half_life) {}

  // Of a leaf, with all it has.
  [[nodiscard]] VictimKey leaf_key(const PrefixNode& node) const;

  // Of a node's state.
  [[nodiscard]] VictimKey state_key(const PrefixNode& node) const;

  // What a state at `to` would score if it were used now, tick `clock`, for the first time, in the
  // middle of a chain and with a state at `from` above it.
  [[nodiscard]] double fresh_middle_score(int64_t from, int64_t to, uint64_t clock) const;

  [[nodiscard]] double half_life() const { return half_life_; }

 private:
  [[nodiscard]] double log2_work(int64_t from, int64_t to) const;

  PrefixTreeOptions options_;
  double half_life_;
};

}  // namespace heddle::cache
