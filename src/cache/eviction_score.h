// SPDX-License-Identifier: Apache-2.0
// EvictionScore: the value of a node, as a key for the orders of eviction_queue.h.
//
// EvictionPolicy::kLru orders by the last use. EvictionPolicy::kFlops orders by
//
//     reuse * (F(p) - F(q)) / bytes
//
// That is the work lost per byte freed. F(L) is the work to compute L tokens of the served model
// (request/prefill_flops.h); p is the depth of the state, q that of the nearest state above it,
// where a sequence would resume instead. The bytes of a leaf include its KV, because no node below
// keeps it. `reuse` counts the uses, which fade with time (UseCount).
// After Pan et al., "Marconi: Prefix Caching for the Era of Hybrid LLMs", arXiv:2411.19379.
//
// A leaf is the end of a conversation, and a fork is where prompts part: sequences are likely to
// resume at both. In the middle of a chain without forks a sequence resumes only if it is the first
// to leave the chain there, so the value of such states is multiplied by kMiddleOfChain. They are
// evicted first, from where they are densest, because dropping one raises the value of the next one
// below.
//
// The key is the logarithm of the score extrapolated to tick 0, so it changes only with the node.
#pragma once

#include "cache/cache_options.h"
#include "cache/prefix_node.h"

namespace heddle::cache {

class EvictionScore {
 public:
  // A use loses half of its weight every `half_life` ticks of the tree's clock.
  EvictionScore(const PrefixTreeOptions& options, double half_life)
      : options_(options), half_life_(half_life) {}

  // The key of a leaf, for the eviction of its pages and state.
  [[nodiscard]] VictimKey leaf_key(const PrefixNode& node) const;

  // The key of a node's state, for the eviction of the state alone.
  [[nodiscard]] VictimKey state_key(const PrefixNode& node) const;

  // The score of a state at `to` tokens in the middle of a chain, used for the first time at tick
  // `clock`, if the next state above it is at `from` tokens.
  [[nodiscard]] double fresh_middle_score(int64_t from, int64_t to, uint64_t clock) const;

  [[nodiscard]] double half_life() const { return half_life_; }

 private:
  [[nodiscard]] double log2_work(int64_t from, int64_t to) const;

  PrefixTreeOptions options_;
  double half_life_;
};

}  // namespace heddle::cache
