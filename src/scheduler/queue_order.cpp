// SPDX-License-Identifier: Apache-2.0
#include "scheduler/queue_order.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <span>
#include <tuple>

#include "core/check.h"

namespace heddle::scheduler {

namespace {

// The finalizer of SplitMix64: every bit of the input reaches every bit of the output.
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

double response_ratio(const QueueEntry& entry) {
  if (entry.uncached_tokens <= 0) return std::numeric_limits<double>::infinity();
  return static_cast<double>(entry.engine_prefilled) / static_cast<double>(entry.uncached_tokens);
}

}  // namespace

void QueueOrder::order(std::vector<QueueEntry>& entries, const QueueOrderInputs& inputs) {
  const QueuePolicy policy = effective_policy(entries.size(), inputs);
  keys_.resize(entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    keys_[i] = key_of(entries[i], policy, inputs);
    keys_[i].index = static_cast<int32_t>(i);
  }
  if (policy == QueuePolicy::kDfsWeight) {
    HEDDLE_CHECK(inputs.shape != nullptr);
    ranks_.resize(entries.size());
    groups_.rank(entries, *inputs.shape, ranks_);
    for (size_t i = 0; i < entries.size(); ++i) {
      if (keys_[i].not_overdue) keys_[i].policy_number = ranks_[i];
    }
  }
  sort_by_keys(entries);
  if (policy == QueuePolicy::kFair) {
    HEDDLE_CHECK(inputs.fair != nullptr);
    share_fairly(entries, *inputs.fair);
  }
}

QueuePolicy QueueOrder::effective_policy(size_t num_entries, const QueueOrderInputs& inputs) const {
  const QueuePolicy policy = options_.policy;
  const auto count = static_cast<int64_t>(num_entries);
  if (uses_prefix_cache(policy) && !reads_matches(policy, count)) return QueuePolicy::kFcfs;
  if (policy == QueuePolicy::kRoutingKey && !inputs.routing_key_runs) return QueuePolicy::kFcfs;
  return policy;
}

QueueOrder::Key QueueOrder::key_of(const QueueEntry& entry, QueuePolicy policy,
                                   const QueueOrderInputs& inputs) const {
  const bool has_bound = policy == QueuePolicy::kLpm || policy == QueuePolicy::kDfsWeight;
  const bool overdue = has_bound && options_.max_wait_seconds > 0 &&
                       entry.queued_seconds > options_.max_wait_seconds;
  Key key;
  key.arrival = entry.arrival;
  if (overdue) return key;
  key.not_overdue = true;
  key.never_ran = !entry.returned;
  switch (policy) {
    case QueuePolicy::kFcfs:
    case QueuePolicy::kPriority:
    case QueuePolicy::kFair:
      key.priority = priority_of(entry);
      break;
    case QueuePolicy::kLof:
      key.priority = priority_of(entry);
      key.policy_number = -entry.max_new_tokens;
      break;
    case QueuePolicy::kLpm:
      key.deprioritized = entry.deprioritized;
      key.policy_number = entry.deprioritized ? 0 : -entry.matched_tokens;
      break;
    case QueuePolicy::kDfsWeight:  // order() sets the key to the rank
      break;
    case QueuePolicy::kRandom:
      key.policy_number = static_cast<int64_t>(
          mix(mix(mix(options_.seed) + inputs.pass) + static_cast<uint64_t>(entry.arrival)));
      break;
    case QueuePolicy::kRoutingKey:
      key.policy_number = -entry.routing_running;
      key.routing_key = entry.routing_key;
      break;
    case QueuePolicy::kHrrn:
      key.deprioritized = entry.deprioritized;
      key.policy_ratio = entry.deprioritized ? 0 : -response_ratio(entry);
      break;
    case QueuePolicy::kShortestPrefillFirst:
      key.deprioritized = entry.deprioritized;
      key.policy_number = std::max<int64_t>(1, entry.uncached_tokens);
      break;
  }
  return key;
}

// Turns descending urgency into an ascending key. A complement exists for every value, a negation
// does not.
int64_t QueueOrder::priority_of(const QueueEntry& entry) const {
  return options_.by_priority ? ~entry.urgency : 0;
}

bool QueueOrder::before(const Key& a, const Key& b) {
  if (a.not_overdue != b.not_overdue) return b.not_overdue;
  if (a.priority != b.priority) return a.priority < b.priority;
  if (a.never_ran != b.never_ran) return b.never_ran;
  if (a.deprioritized != b.deprioritized) return b.deprioritized;
  if (a.policy_number != b.policy_number) return a.policy_number < b.policy_number;
  if (a.policy_ratio != b.policy_ratio) return a.policy_ratio < b.policy_ratio;
  if (a.routing_key != b.routing_key) return a.routing_key < b.routing_key;
  return a.arrival < b.arrival;
}

void QueueOrder::sort_by_keys(std::vector<QueueEntry>& entries) {
  // Already in order, which is usual for fcfs.
  if (std::is_sorted(keys_.begin(), keys_.end(), before)) return;
  std::sort(keys_.begin(), keys_.end(), before);
  sorted_.clear();
  for (const Key& key : keys_) sorted_.push_back(entries[static_cast<size_t>(key.index)]);
  entries.swap(sorted_);
}

// Lets FairShare order each run of new entries of equal urgency, which is one class.
void QueueOrder::share_fairly(std::vector<QueueEntry>& entries, const FairShare& fair) {
  fair.begin_order(fair_scratch_);
  for (size_t begin = 0; begin < entries.size();) {
    size_t end = begin + 1;
    while (end < entries.size() && keys_[end].priority == keys_[begin].priority &&
           keys_[end].never_ran == keys_[begin].never_ran) {
      ++end;
    }
    if (!entries[begin].returned) {
      fair.order(std::span(entries).subspan(begin, end - begin), fair_scratch_);
    }
    begin = end;
  }
}

void PrefixGroups::rank(std::span<const QueueEntry> entries, const PrefixShape& shape,
                        std::span<int64_t> ranks) {
  HEDDLE_CHECK_EQ(entries.size(), ranks.size());
  collect_nodes(entries, shape);
  add_weights(entries);
  order_siblings();

  // The order with children before their parent is the reverse of: the parent, then its children,
  // last child first.
  auto position = static_cast<int64_t>(nodes_.size());
  stack_.assign(1, 0);
  while (!stack_.empty()) {
    const auto node = static_cast<size_t>(stack_.back());
    stack_.pop_back();
    nodes_[node].rank = --position;
    const auto begin = siblings_.begin();
    stack_.insert(stack_.end(), begin + first_sibling_[node], begin + first_sibling_[node + 1]);
  }
  HEDDLE_CHECK_EQ(position, 0);  // every node is reachable from the root
  for (size_t i = 0; i < entries.size(); ++i) {
    ranks[i] = nodes_[static_cast<size_t>(find(entries[i].match_node))].rank;
  }
}

// Collects all nodes on the paths from the root to the entries' nodes, each once.
void PrefixGroups::collect_nodes(std::span<const QueueEntry> entries, const PrefixShape& shape) {
  nodes_.assign(1, Node{});
  for (const QueueEntry& entry : entries) {
    for (const void* key = entry.match_node; key != nullptr;) {
      const void* const parent = shape.parent(key);
      nodes_.push_back({.key = key, .parent_key = parent});
      key = parent;
    }
  }
  const auto first = nodes_.begin() + 1;
  std::sort(first, nodes_.end(),
            [](const Node& a, const Node& b) { return std::less<const void*>()(a.key, b.key); });
  nodes_.erase(
      std::unique(first, nodes_.end(), [](const Node& a, const Node& b) { return a.key == b.key; }),
      nodes_.end());
  for (auto node = nodes_.begin() + 1; node != nodes_.end(); ++node) {
    node->parent = find(node->parent_key);
  }
}

int32_t PrefixGroups::find(const void* key) const {
  if (key == nullptr) return 0;
  const auto found = std::lower_bound(nodes_.begin() + 1, nodes_.end(), key,
                                      [](const Node& node, const void* wanted) {
                                        return std::less<const void*>()(node.key, wanted);
                                      });
  HEDDLE_CHECK(found != nodes_.end() && found->key == key);
  return static_cast<int32_t>(found - nodes_.begin());
}

void PrefixGroups::add_weights(std::span<const QueueEntry> entries) {
  for (const QueueEntry& entry : entries) {
    for (int32_t index = find(entry.match_node); index >= 0;) {
      Node& node = nodes_[static_cast<size_t>(index)];
      ++node.weight;
      node.first_arrival = std::min(node.first_arrival, entry.arrival);
      index = node.parent;
    }
  }
}

void PrefixGroups::order_siblings() {
  siblings_.resize(nodes_.size() - 1);
  for (size_t i = 0; i < siblings_.size(); ++i) siblings_[i] = static_cast<int32_t>(i + 1);
  std::sort(siblings_.begin(), siblings_.end(), [this](int32_t a, int32_t b) {
    const Node& left = nodes_[static_cast<size_t>(a)];
    const Node& right = nodes_[static_cast<size_t>(b)];
    return std::tuple(left.parent, -left.weight, left.first_arrival) <
           std::tuple(right.parent, -right.weight, right.first_arrival);
  });
  first_sibling_.assign(nodes_.size() + 1, 0);
  for (const int32_t index : siblings_) {
    ++first_sibling_[static_cast<size_t>(nodes_[static_cast<size_t>(index)].parent) + 1];
  }
  for (size_t i = 1; i < first_sibling_.size(); ++i) first_sibling_[i] += first_sibling_[i - 1];
}

}  // namespace heddle::scheduler
