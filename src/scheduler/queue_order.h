// SPDX-License-Identifier: Apache-2.0
// QueueOrder: sorts waiting requests by a policy.
//
// Sort keys in ascending order; the first difference decides. `prio` is -urgency with by_priority
// and 0 without, `new` is 0 for a returned request and 1 for one that never ran:
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
//   fair: prio, new; returned requests by arrival, the others by FairShare::order()
//
// hrrn places fully cached prompts before every ratio. routing-key is fcfs while no running
// sequence has a key. A returned request goes before its equals that never ran: a client reads its
// stream, and a position at the end would let repeated retractions delay it without bound. lpm and
// dfs-weight pass over requests without a match, so a request that waited longer than
// `max_wait_seconds` goes before all others, by arrival. With more than kMaxMatchedWaiting entries
// lpm and hrrn order like fcfs.
//
// The order is total and does not depend on the order of the input: arrivals differ, and the policy
// random sorts by a hash.
//
// Threading: thread-confined.
// Cost: 1,000 entries take about 15 us if they are already in order, which is usual for fcfs, 60 us
// shuffled and 130 us for fair (batch_scheduler_bench.cpp). Allocates nothing once its vectors have
// grown.
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

// The structure of the prefix tree, as far as the policy dfs-weight needs it.
class PrefixShape {
 public:
  virtual ~PrefixShape() = default;

  // The parent of a node; null for a child of the root. `node` is not null.
  [[nodiscard]] virtual const void* parent(const void* node) const = 0;
};

// PrefixGroups: the order of dfs-weight. Requests whose match ends in the same part of the prefix
// tree are grouped, so that the prefix of one is still cached when the next one runs.
//
// weight(node) = requests that end at the node + the weights of its children. The tree is walked
// from the root: children by descending weight (ties: the subtree with the smallest arrival), each
// with its whole subtree; after the children, the requests that end at the node itself.
//
// Threading: thread-confined. Cost: O(n * depth + nodes log nodes); allocates nothing once grown.
class PrefixGroups {
 public:
  // Sets ranks[i] to the position of the node of entries[i] in the order. Entries of the same node
  // get the same rank; the caller orders them by arrival. Both spans have the same size (checked).
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

  std::vector<Node> nodes_;             // the root, then the other nodes by key
  std::vector<int32_t> siblings_;       // all nodes but the root, grouped by parent, in their order
  std::vector<int32_t> first_sibling_;  // by node: index in siblings_ of its first child; one more
                                        // entry marks the end
  std::vector<int32_t> stack_;
};

struct QueueOrderOptions {
  QueuePolicy policy = QueuePolicy::kFcfs;
  bool by_priority = false;     // urgency comes first; for fcfs, lof and fair
  double max_wait_seconds = 5;  // a longer wait goes before all others; for lpm and dfs-weight; <=
                                // 0: no bound
  uint64_t seed = 0;            // seed of the policy random
};

// Inputs of the order besides the entries.
struct QueueOrderInputs {
  uint64_t pass = 0;                   // number of the pass: the policy random shuffles anew in
                                       // each
  bool routing_key_runs = false;       // some running sequence has a key; for the policy
                                       // routing-key
  const PrefixShape* shape = nullptr;  // for the policy dfs-weight; not null then (checked)
  const FairShare* fair = nullptr;     // for the policy fair; not null then (checked)
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
    int64_t priority = 0;       // `prio` of the list of keys above
    int64_t policy_number = 0;  // integer that the policy compares: tokens, a rank or a hash
    double policy_ratio = 0;    // ratio that the policy hrrn compares
    std::string_view routing_key;
    int64_t arrival = 0;
    int32_t index = 0;  // index of the entry in the unsorted list
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
