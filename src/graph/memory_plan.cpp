// SPDX-License-Identifier: Apache-2.0
#include "graph/memory_plan.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::graph {

namespace {

struct Block {
  int64_t size = 0;
  LiveRange live;
  int64_t* offset = nullptr;
};

int64_t align_up(int64_t bytes) {
  return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// The offset of the smallest sufficient gap between placed blocks that are live at the same time;
// if there is none, the end of the last such block.
int64_t best_fit(const Block& block, const std::vector<Block>& placed_by_offset) {
  int64_t best_offset = -1;
  int64_t best_gap = 0;
  int64_t free_from = 0;
  for (const Block& other : placed_by_offset) {
    if (!other.live.overlaps(block.live)) continue;
    const int64_t gap = *other.offset - free_from;
    if (gap >= block.size && (best_offset < 0 || gap < best_gap)) {
      best_offset = free_from;
      best_gap = gap;
    }
    free_from = std::max(free_from, *other.offset + other.size);
  }
  return best_offset >= 0 ? best_offset : free_from;
}

int64_t assign_offsets(std::vector<Block> blocks) {
  std::ranges::stable_sort(blocks, [](const Block& a, const Block& b) { return a.size > b.size; });
  std::vector<Block> placed;
  int64_t arena_bytes = 0;
  for (const Block& block : blocks) {
    *block.offset = best_fit(block, placed);
    arena_bytes = std::max(arena_bytes, *block.offset + block.size);
    const auto where = std::ranges::upper_bound(placed, *block.offset, {},
                                                [](const Block& other) { return *other.offset; });
    placed.insert(where, block);
  }
  return arena_bytes;
}

}  // namespace

MemoryPlan plan_memory(const PlacedGraph& placed, std::span<const Chain> chains,
                       const ops::Extents& largest, const ops::Context& context) {
  const Graph& graph = placed.graph;
  MemoryPlan plan;
  plan.offset.assign(graph.values.size(), -1);
  plan.size.assign(graph.values.size(), 0);
  plan.live.assign(graph.values.size(), {});
  plan.workspace_offset.assign(graph.nodes.size(), -1);
  plan.workspace_size.assign(graph.nodes.size(), 0);
  plan.workspace_live.resize(graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    plan.workspace_live[i] = {.begin = index, .end = index};
  }
  for (const Chain& chain : chains) {
    for (size_t i = chain.begin; i < chain.end(); ++i) {
      plan.workspace_live[i] = {.begin = static_cast<int32_t>(chain.begin),
                                .end = static_cast<int32_t>(chain.end() - 1)};
    }
  }

  const auto touch = [&](Value value, size_t node) {
    const Value storage = placed.placements[value.id].storage;
    if (graph.info(storage).kind != ValueKind::kComputed) return;
    LiveRange& live = plan.live[storage.id];
    if (live.begin < 0) live.begin = static_cast<int32_t>(node);
    live.end = std::max(live.end, static_cast<int32_t>(node));
  };
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    for (const Value input : graph.nodes[i].inputs) {
      touch(input, i);
      touch(input, static_cast<size_t>(plan.workspace_live[i].end));
    }
    for (const Value output : graph.nodes[i].outputs) touch(output, i);
  }
  for (const Value output : graph.outputs) touch(output, graph.nodes.size());

  std::vector<Block> blocks;
  for (uint32_t id = 0; id < graph.values.size(); ++id) {
    if (plan.live[id].begin < 0) continue;
    plan.size[id] = align_up(placed.storage_bytes({id}, largest));
    if (plan.size[id] == 0) plan.size[id] = kArenaAlignment;
    blocks.push_back({.size = plan.size[id], .live = plan.live[id], .offset = &plan.offset[id]});
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.op->workspace_bytes == nullptr) continue;
    std::vector<ops::TensorMeta> metas;
    for (const Value input : node.inputs) metas.push_back(graph.info(input).meta);
    plan.workspace_size[i] =
        align_up(node.op->workspace_bytes(metas, node.attrs, largest, context));
    if (plan.workspace_size[i] == 0) continue;
    blocks.push_back({.size = plan.workspace_size[i],
                      .live = plan.workspace_live[i],
                      .offset = &plan.workspace_offset[i]});
  }
  plan.arena_bytes = assign_offsets(std::move(blocks));
  return plan;
}

Status check_plan(const PlacedGraph& placed, const MemoryPlan& plan) {
  struct Item {
    std::string name;
    int64_t offset;
    int64_t size;
    LiveRange live;
  };

  std::vector<Item> items;
  for (uint32_t id = 0; id < plan.offset.size(); ++id) {
    if (plan.live[id].begin < 0) continue;
    items.push_back({placed.graph.label({id}), plan.offset[id], plan.size[id], plan.live[id]});
  }
  for (size_t i = 0; i < plan.workspace_size.size(); ++i) {
    if (plan.workspace_size[i] == 0) continue;
    items.push_back({fmt::format("workspace of node {}", i), plan.workspace_offset[i],
                     plan.workspace_size[i], plan.workspace_live[i]});
  }
  for (size_t a = 0; a < items.size(); ++a) {
    if (items[a].offset < 0 || items[a].offset % kArenaAlignment != 0 ||
        items[a].offset + items[a].size > plan.arena_bytes) {
      return internal_error(
          fmt::format("{} lies at {}, outside the arena", items[a].name, items[a].offset));
    }
    for (size_t b = a + 1; b < items.size(); ++b) {
      const bool apart = items[a].offset + items[a].size <= items[b].offset ||
                         items[b].offset + items[b].size <= items[a].offset;
      if (!apart && items[a].live.overlaps(items[b].live)) {
        return internal_error(
            fmt::format("{} and {} live at once and overlap", items[a].name, items[b].name));
      }
    }
  }
  return {};
}

}  // namespace heddle::graph
