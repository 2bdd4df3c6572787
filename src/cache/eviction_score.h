// SPDX-License-Identifier: Apache-2.0
// EvictionScore: how much a node is worth, as a key of the orders of eviction_queue.h.
//
// EvictionPolicy::kLru orders by the last use. EvictionPolicy::kFlops orders by
//
//     reuse * (F(p) - F(q)) / bytes
//
// the work that is lost per byte that becomes free. F(L) is the work to compute L tokens of the
// served model (request/prefill_flops.h); p is the depth of the state, q that of the nearest state
// above, where a sequence would resume instead; the bytes of a leaf include its KV, because nothing
// below a lost leaf keeps it. `reuse` counts uses that fade with time (UseCount).
// After Pan et al., "Marconi: Prefix Caching for the Era of Hybrid LLMs", arXiv:2411.19379.
//
// A leaf is the tail of a conversation, and prompts part where edges fork: sequences are likely to
// resume at both. In the middle of a chain without forks a sequence resumes only if it is the first
// to leave the chain there. Such states weigh kMiddleOfChain. They go first, the densest first,
// because dropping one raises what the next one down is worth.
//
// The key is the logarithm of the score seen from tick 0: it changes only with the node.
#pragma once

#include "cache/cache_options.h"
#include "cache/prefix_node.h"

namespace heddle::cache {

class EvictionScore {
 public:
  // A use halves its weight every `half_life` ticks of the tree's clock.
  EvictionScore(const PrefixTreeOptions& options, double half_life)
      : options_(options), half_life_(half_life) {}

  // The key of a leaf with its pages and state.
  [[nodiscard]] VictimKey leaf_key(const PrefixNode& node) const;

  // The key of a node's state.
  [[nodiscard]] VictimKey state_key(const PrefixNode& node) const;

  // The score of a state at `to` if it were used now, tick `clock`, for the first time, in the
  // middle of a chain and with a state at `from` above it.
  [[nodiscard]] double fresh_middle_score(int64_t from, int64_t to, uint64_t clock) const;

  [[nodiscard]] double half_life() const { return half_life_; }

 private:
  [[nodiscard]] double log2_work(int64_t from, int64_t to) const;

  PrefixTreeOptions options_;
  double half_life_;
};

}  // namespace heddle::cache
