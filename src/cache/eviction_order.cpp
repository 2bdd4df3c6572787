// SPDX-License-Identifier: Apache-2.0
#include "cache/eviction_order.h"

#include "core/check.h"

namespace heddle::cache {

void EvictionOrder::update(PrefixNode& node, std::optional<VictimKey>& place,
                           const std::optional<VictimKey>& wanted) {
  if (place == wanted) return;
  if (place) HEDDLE_CHECK_EQ(nodes_.erase(*place), 1U);
  if (wanted) HEDDLE_CHECK(nodes_.emplace(*wanted, &node).second);
  place = wanted;
}

bool EvictionOrder::contains(const VictimKey& key, const PrefixNode& node) const {
  const auto found = nodes_.find(key);
  return found != nodes_.end() && found->second == &node;
}

}  // namespace heddle::cache
