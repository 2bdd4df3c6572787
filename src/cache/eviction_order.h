// SPDX-License-Identifier: Apache-2.0
// EvictionOrder: the nodes that may give something up, the one worth least first. An ordered set
// whose keys change only when the node does, so the next victim is always at its front.
//
// Threading: confined to the engine thread. Cost: O(log nodes) to place, O(1) to look at the first.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>

namespace heddle::cache {

struct PrefixNode;

struct VictimKey {
  double score = 0;     // what is lost per byte that becomes free, in the scale of the policy
  uint64_t used = 0;    // last use, on the tree's clock: decides between equal scores
  uint64_t serial = 0;  // of the node: makes keys unique, and the order the same in every run

  auto operator<=>(const VictimKey&) const = default;
};

class EvictionOrder {
 public:
  // Puts the node where `wanted` says, or takes it out; `place` is where it is and follows.
  void update(PrefixNode& node, std::optional<VictimKey>& place,
              const std::optional<VictimKey>& wanted);

  // Null if nobody may give anything up.
  [[nodiscard]] PrefixNode* first() const {
    return nodes_.empty() ? nullptr : nodes_.begin()->second;
  }

  [[nodiscard]] int64_t size() const { return static_cast<int64_t>(nodes_.size()); }

  [[nodiscard]] bool contains(const VictimKey& key, const PrefixNode& node) const;

 private:
  std::map<VictimKey, PrefixNode*> nodes_;
};

}  // namespace heddle::cache
