// SPDX-License-Identifier: Apache-2.0
// plan_memory: one arena for all values of a step. Liveness over node indices, then greedy best
// fit, the largest storage first. Offsets are computed for the largest step; all dimensions grow
// with it, so the same offsets hold for every smaller one, and addresses never change.
//
// Workspaces are storages that live for one node, or for its chain.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "graph/chains.h"
#include "graph/placement.h"

namespace heddle::graph {

inline constexpr int64_t kArenaAlignment = 256;

struct LiveRange {
  int32_t begin = -1;  // first node that writes it
  int32_t end = -1;    // node that reads last, inclusive; nodes.size() for outputs of the graph

  [[nodiscard]] bool overlaps(const LiveRange& other) const {
    return begin <= other.end && other.begin <= end;
  }
};

struct MemoryPlan {
  std::vector<int64_t> offset;  // indexed by value id; -1 for values that are not storages
  std::vector<int64_t> size;    // bytes, by value id
  std::vector<LiveRange> live;  // indexed by value id
  std::vector<int64_t> workspace_offset;  // indexed by node; -1 without workspace
  std::vector<int64_t> workspace_size;    // indexed by node
  std::vector<LiveRange> workspace_live;  // indexed by node
  int64_t arena_bytes = 0;
};

// Nodes of a chain live together: what one of them reads or works in stays until its end.
MemoryPlan plan_memory(const PlacedGraph& placed, std::span<const Chain> chains,
                       const ops::Extents& largest, const ops::Context& context);

// Error: names two storages that overlap while both are live. For tests.
Status check_plan(const PlacedGraph& placed, const MemoryPlan& plan);

}  // namespace heddle::graph
