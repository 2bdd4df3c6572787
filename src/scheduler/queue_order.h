// SPDX-License-Identifier: Apache-2.0
// QueueOrder: sorts waiting requests by a policy.
//
// Keys, ascending, first difference decides; `prio` is -urgency with by_priority and 0 without,
// `new` is 0 for a returned request and 1 for one that never ran:
//
//   fcfs: prio, new, arrival
//
//   lpm: overdue first; new, deprioritized, -matched_tokens, arrival
//
//   dfs-weight: overdue first; new, position in the tree's order (PrefixGroups), arrival
//
//   lof: prio, new, -max_new_tokens, arrival
//
//   random: new, hash of (seed, pass, arrival), arrival
//
//   routing-key: new, -running with that key, key, arrival
//
//   hrrn: new, deprioritized, -(engine_prefilled / uncached_tokens), arrival
//
//   shortest-prefill-first: new, deprioritized, max(1, uncached_tokens), arrival
//
//   fair: prio, new; the returned by arrival, the others by FairShare::order()
//
// hrrn puts what is cached to the end before every ratio; routing-key is fcfs while no running
// sequence has a key. A returned request goes before its equals that have not started: a client
// reads its stream, and a position at the end would let repeated retraction delay it without bound.
// lpm and dfs-weight pass over requests without a match, so one that waited longer than
// `max_wait_seconds` goes before all others, by arrival. With more than kMaxMatchedWaiting entries
// lpm and hrrn order as fcfs.
//
// The order is total and depends on the entries alone, not on the order they come in: arrivals
// differ, and random is a hash.
//
// Threading: thread-confined.
// Cost: 1,000 entries take about 15 us when they are in order already, which is usual for fcfs, 60
// us shuffled and 130 us for fair (batch_scheduler_bench.cpp); nothing is allocated once grown.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include "scheduler/fair_share.h"
#include "scheduler/queue_entry.h"
#include "scheduler/queue_policy.h"

namespace heddle::scheduler {

// The prefix tree's structure, for dfs-weight.
class PrefixShape {
 public:
  virtual ~PrefixShape() = default;

  // The node above; null for a node right below the root. Never asked about null.
  [[nodiscard]] virtual const void* parent(const void* node) const = 0;
};

// PrefixGroups: the order of dfs-weight. Requests that end in the same part of the prefix tree come
// together, so that what one of them needs is still cached when the next one runs.
//
// weight(node) = requests that end at the node + the weights of its children. From the root:
// children by descending weight (ties: the one below which the smallest arrival is), each with all
// that is below it; after the children, the requests that end at the node itself.
//
// Threading: thread-confined. Cost: O(n * depth + nodes log nodes); allocates nothing once grown.
class PrefixGroups {
 public:
  // ranks[i] is the position of entries[i]'s node in the order: entries of the same node have the
  // same rank, to be ordered by arrival. Same sizes (checked).
  void rank(std::span<const QueueEntry> entries, const PrefixShape& shape,
            std::span<int64_t> ranks);

 private:
  struct Node {
    const void* key = nullptr;
    const void* parent_key = nullptr;
    int32_t parent = -1;
    int64_t weight = 0;
    int64_t first_arrival = std::numeric_limits<int64_t>::max();
    int64_t rank = 0;
  };

  void collect_nodes(std::span<const QueueEntry> entries, const PrefixShape& shape);
  [[nodiscard]] int32_t find(const void* key) const;
  void add_weights(std::span<const QueueEntry> entries);
  void order_siblings();

  std::vector<Node> nodes_;             // the root first, then by key
  std::vector<int32_t> siblings_;       // all but the root, by parent, then in their order
  std::vector<int32_t> first_sibling_;  // by node: index in siblings_ of its first child; one more
                                        // at the end
  std::vector<int32_t> stack_;
};

struct QueueOrderOptions {
  QueuePolicy policy = QueuePolicy::kFcfs;
  bool by_priority = false;     // fcfs, lof and fair
  double max_wait_seconds = 5;  // lpm and dfs-weight; <= 0: no bound
  uint64_t seed = 0;            // random
};

// Inputs besides the entries on which the order of a pass depends.
struct QueueOrderInputs {
  uint64_t pass = 0;                   // random shuffles anew for each
  bool routing_key_runs = false;       // routing-key: some running sequence has a key
  const PrefixShape* shape = nullptr;  // dfs-weight: not null (checked)
  const FairShare* fair = nullptr;     // fair: not null (checked)
};

class QueueOrder {
 public:
  explicit QueueOrder(const QueueOrderOptions& options) : options_(options) {}

  // Sorts `entries` in place.
  void order(std::vector<QueueEntry>& entries, const QueueOrderInputs& inputs);

 private:
  struct Key {
    bool not_overdue = false;
    bool never_ran = false;
    bool deprioritized = false;
    int64_t priority = 0;       // `prio`
    int64_t policy_number = 0;  // what the policy compares, where it is an integer: tokens, a rank,
                                // a hash
    double policy_ratio = 0;    // for policies with a ratio
    std::string_view routing_key;
    int64_t arrival = 0;
    int32_t index = 0;  // index of the entry
  };

  [[nodiscard]] QueuePolicy effective_policy(size_t num_entries,
                                             const QueueOrderInputs& inputs) const;
  [[nodiscard]] Key key_of(const QueueEntry& entry, QueuePolicy policy,
                           const QueueOrderInputs& inputs) const;
  [[nodiscard]] int64_t priority_of(const QueueEntry& entry) const;
  static bool before(const Key& a, const Key& b);
  void sort_by_keys(std::vector<QueueEntry>& entries);
  void share_fairly(std::vector<QueueEntry>& entries, const FairShare& fair);

  QueueOrderOptions options_;
  PrefixGroups groups_;
  std::vector<Key> keys_;
  std::vector<int64_t> ranks_;
  std::vector<QueueEntry> sorted_;
  FairShare::OrderScratch fair_scratch_;
};

}  // namespace heddle::scheduler
