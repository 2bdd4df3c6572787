// SPDX-License-Identifier: Apache-2.0
#include "cache/cache_view.h"

#include <algorithm>
#include <queue>
#include <unordered_set>
#include <vector>

namespace heddle::cache {
namespace {

// The most roots and children that one view compares, so that nodes with very many children do not
// delay a step. This takes about a millisecond if each of them misses the processor's caches. The
// view shows the most recently used of the nodes that it compares.
constexpr int64_t kMaxCompared = 10000;

// A node to show; the most recently used one is shown first.
struct Candidate {
  const PrefixNode* node = nullptr;
  const std::string* name_space = nullptr;

  bool operator<(const Candidate& other) const {
    if (node->kv_used != other.node->kv_used) return node->kv_used < other.node->kv_used;
    return node->serial < other.node->serial;
  }
};

int64_t id_of(const PrefixNode& node) {
  return node.is_root() ? 0 : static_cast<int64_t>(node.serial);
}

PrefixNodeView view_node(const Candidate& shown, int64_t max_tokens, uint64_t clock) {
  const PrefixNode& node = *shown.node;
  const auto num_tokens = std::ssize(node.tokens);
  PrefixNodeView view{.id = id_of(node),
                      .parent = id_of(*node.parent),
                      .name_space = *shown.name_space,
                      .begin = node.begin,
                      .num_tokens = num_tokens,
                      .num_children = std::ssize(node.children),
                      .has_state = node.has_state(),
                      .num_uses = node.state.num_uses,
                      .locks = node.locks,
                      .state_locks = node.state_locks,
                      .idle_ticks = static_cast<int64_t>(clock - node.kv_used)};
  view.tokens.assign(node.tokens.begin(), node.tokens.begin() + std::min(num_tokens, max_tokens));
  return view;
}

// `path` leads from a child of a root to the last node that matches the prompt; its nodes come
// first.
void view_tree(const PrefixTree& tree, const std::vector<const PrefixNode*>& path,
               const InspectionOptions& options, PrefixTreeView& view) {
  if (options.max_nodes <= 0) return;
  const std::unordered_set<const PrefixNode*> on_path(path.begin(), path.end());
  std::priority_queue<Candidate> candidates;
  int64_t num_compared = 0;
  const auto add_children = [&](const PrefixNode& node, const std::string& name_space) {
    for (const auto& child : node.children) {
      if (++num_compared > kMaxCompared) return;
      if (!on_path.contains(child.get())) candidates.push({child.get(), &name_space});
    }
  };
  const auto show = [&](const Candidate& shown) {
    view.nodes.push_back(view_node(shown, options.max_node_tokens, tree.clock()));
    add_children(*shown.node, *shown.name_space);
  };
  const auto has_room = [&] { return std::ssize(view.nodes) < options.max_nodes; };

  for (const PrefixNode* const node : path) {
    if (has_room()) show({node, path.front()->parent->name_space});
  }
  for (const auto& [name, root] : tree.nodes().roots()) {
    if (++num_compared > kMaxCompared) break;
    add_children(*root, name);
  }
  while (!candidates.empty() && has_room()) {
    const Candidate best = candidates.top();
    candidates.pop();
    show(best);
  }
}

}  // namespace

void view_cache(const PrefixCache& cache, const InspectionOptions& options,
                const request::Sequence* prompt, Inspection& inspection) {
  const PrefixCacheStats stats = cache.stats();
  const PoolSizes& sizes = cache.options().pools;
  inspection.page_size = sizes.page_size;
  inspection.kv_pages = {.total = sizes.num_pages,
                         .requests = stats.pages_used - stats.pages_cached - stats.pages_locked,
                         .shared = stats.pages_locked,
                         .cached = stats.pages_cached,
                         .bytes_each = sizes.page_bytes,
                         .evicted = stats.evicted_tokens};
  inspection.states = {
      .total = sizes.num_state_slots + sizes.num_snapshot_slots,
      .requests = stats.state_slots_used - stats.state_slots_cached - stats.state_slots_locked,
      .shared = stats.state_slots_locked,
      .cached = stats.state_slots_cached,
      .bytes_each = sizes.snapshot_bytes(),
      .evicted = stats.evicted_states};
  inspection.window_pages = {
      .total = sizes.num_pages_of_windows(),
      .requests = stats.windows_used - stats.windows_cached,
      .cached = stats.windows_cached,
      .bytes_each = sizes.windows.empty() ? 0 : sizes.windows.front().page_bytes,
      .evicted = stats.windows_evicted};

  std::vector<const PrefixNode*> path;
  if (prompt != nullptr) {
    const PrefixMatch match = cache.match(*prompt);
    PromptReuse& reuse = inspection.reuse.emplace();
    reuse.prompt_tokens = prompt->num_tokens();
    reuse.matched_tokens = match.kv_tokens;
    reuse.reused_tokens = cache.resume_tokens(*prompt, match);
    reuse.exact_repeat = reuse.reused_tokens == prompt->num_tokens();
    for (const PrefixNode* node = match.kv_node; node != nullptr && !node->is_root();
         node = node->parent) {
      path.push_back(node);
    }
    std::ranges::reverse(path);
    for (const PrefixNode* const node : path) reuse.path.push_back(id_of(*node));
  }

  const PrefixTreeStats tree = cache.tree().stats();
  inspection.tree.needs_state = sizes.has_states();
  inspection.tree.num_nodes = tree.num_nodes;
  inspection.tree.num_tokens = tree.num_tokens;
  inspection.tree.num_states = tree.states;
  view_tree(cache.tree(), path, options, inspection.tree);
}

}  // namespace heddle::cache
