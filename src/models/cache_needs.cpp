// SPDX-License-Identifier: Apache-2.0
#include "models/cache_needs.h"

#include <algorithm>
#include <utility>

namespace heddle::models {

namespace {

// Adds a layer to `groups[group]` and returns its index in `layers`.
template <typename Group>
int64_t add_layer(std::vector<Group>& groups, size_t group, std::vector<GroupedLayer>& layers) {
  layers.push_back({.group = group, .index = groups[group].num_layers++});
  return static_cast<int64_t>(layers.size()) - 1;
}

}  // namespace

int64_t CacheNeeds::add_kv_layer(const KvShape& shape, int64_t window) {
  const auto found = std::ranges::find_if(page_groups, [&](const PageGroup& group) {
    return group.shape == shape && group.window == window;
  });
  const auto group = static_cast<size_t>(found - page_groups.begin());
  if (found == page_groups.end()) page_groups.push_back({.shape = shape, .window = window});
  return add_layer(page_groups, group, kv_layers);
}

int64_t CacheNeeds::add_state_layer(std::vector<StatePart> parts) {
  const auto found = std::ranges::find(state_groups, parts, &StateGroup::parts);
  const auto group = static_cast<size_t>(found - state_groups.begin());
  if (found == state_groups.end()) state_groups.push_back({.parts = std::move(parts)});
  return add_layer(state_groups, group, state_layers);
}

std::vector<int64_t> CacheNeeds::windows() const {
  std::vector<int64_t> windows;
  for (const GroupedLayer& layer : kv_layers) windows.push_back(page_groups[layer.group].window);
  return windows;
}

}  // namespace heddle::models
