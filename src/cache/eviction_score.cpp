// SPDX-License-Identifier: Apache-2.0
#include "cache/eviction_score.h"

#include <algorithm>
#include <cmath>

#include "cache/prefix_node.h"
#include "core/check.h"

namespace heddle::cache {
namespace {

// Factor for states in the middle of a chain: most conversations continue at their end, a few in a
// hundred are edited earlier.
constexpr double kMiddleOfChain = 1.0 / 16;

}  // namespace

double EvictionScore::log2_work(int64_t from, int64_t to) const {
  HEDDLE_CHECK(options_.flops.is_set());
  return std::log2(std::max(options_.flops.of(to) - options_.flops.of(from), 1.0));
}

VictimKey EvictionScore::leaf_key(const PrefixNode& node) const {
  if (options_.eviction == EvictionPolicy::kLru) {
    return {static_cast<double>(node.kv_used), node.kv_used, node.serial};
  }
  if (node.has_state()) return state_key(node);
  // Without states the edge itself is lost, and a sequence that needs it resumes at the edge's
  // begin.
  const auto bytes = static_cast<double>(std::max<int64_t>(node.num_owned_pages(), 1)) *
                     static_cast<double>(options_.page_bytes);
  const double score = node.kv_uses.log2_at_zero(half_life_) + log2_work(node.begin, node.depth()) -
                       std::log2(bytes);
  return {score, node.kv_used, node.serial};
}

double EvictionScore::fresh_middle_score(int64_t from, int64_t to, uint64_t clock) const {
  if (options_.eviction == EvictionPolicy::kLru) return static_cast<double>(clock);
  return static_cast<double>(clock) / half_life_ + log2_work(from, to) -
         std::log2(static_cast<double>(options_.state_bytes)) + std::log2(kMiddleOfChain);
}

VictimKey EvictionScore::state_key(const PrefixNode& node) const {
  const uint64_t used = node.state_uses.tick;
  if (options_.eviction == EvictionPolicy::kLru) {
    return {static_cast<double>(used), used, node.serial};
  }
  const PrefixNode* above = state_above(node);
  auto bytes = static_cast<double>(options_.state_bytes);
  if (node.is_leaf()) {
    bytes += static_cast<double>(node.num_owned_pages()) * static_cast<double>(options_.page_bytes);
  }
  double score = node.state_uses.log2_at_zero(half_life_) +
                 log2_work(above == nullptr ? 0 : above->depth(), node.depth()) - std::log2(bytes);
  if (node.children.size() == 1) score += std::log2(kMiddleOfChain);
  return {score, used, node.serial};
}

}  // namespace heddle::cache
