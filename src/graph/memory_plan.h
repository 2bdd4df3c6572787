// SPDX-License-Identifier: Apache-2.0
// plan_memory: assigns all values of a step to one arena. It computes liveness over node indices
// and then places storages by greedy best fit, the largest one first. Offsets are computed for the
// largest step. All dimensions grow with the step, so the same offsets are valid for every smaller
// step, and addresses never change.
//
// A workspace is a storage that is live during one node, or during that node's chain.
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
  int32_t end = -1;    // last node that reads it, inclusive; nodes.size() for outputs of the graph

  [[nodiscard]] bool overlaps(const LiveRange& other) const {
    return begin <= other.end && other.begin <= end;
  }
};

struct MemoryPlan {
  std::vector<int64_t> offset;  // indexed by value id; -1 for values that are not storages
  std::vector<int64_t> size;    // bytes, indexed by value id
  std::vector<LiveRange> live;  // live ranges of storages, indexed by value id
  std::vector<int64_t> workspace_offset;  // indexed by node; -1 without workspace
  std::vector<int64_t> workspace_size;    // bytes of each workspace, indexed by node
  std::vector<LiveRange> workspace_live;  // live ranges of workspaces, indexed by node
  int64_t arena_bytes = 0;
};

// Plans the arena. Nodes of a chain run together, so everything that one of them reads or uses as
// workspace stays live until the chain's end.
MemoryPlan plan_memory(const PlacedGraph& placed, std::span<const Chain> chains,
                       const ops::Extents& largest, const ops::Context& context);

// Checks, for tests, that storages do not overlap while they are live. Error: names two that do.
Status check_plan(const PlacedGraph& placed, const MemoryPlan& plan);

}  // namespace heddle::graph
