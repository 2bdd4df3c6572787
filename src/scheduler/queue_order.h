// SPDX-License-Identifier: Apache-2.0
// QueueOrder: sorts waiting requests by a policy.
//
// Keys, ascending, first difference decides; `prio` is -urgency where by_priority is on and 0
// elsewhere, `new` is 0 for a returned request and 1 for one that never ran:
//
//   fcfs                    prio, new, arrival
//   lpm                     overdue first; new, deprioritized, -matched_tokens, arrival
//   dfs-weight              overdue first; new, place in the tree's order (prefix_groups.h),
//   arrival lof                     prio, new, -max_new_tokens, arrival random new, hash of (seed,
//   pass, arrival), arrival routing-key             new, running keys first, -running with that
//   key, key, arrival;
//                           as fcfs while no key of a waiting request runs
//   hrrn                    new, deprioritized, -(engine_prefilled / uncached_tokens), arrival;
//                           nothing uncached: before every ratio
//   shortest-prefill-first  new, deprioritized, max(1, uncached_tokens), arrival
//   fair                    prio, new, then FairShare::order()
//
// A returned request goes before its equals that have not started: somebody reads its stream, and a
// place at the end would let repeated retraction delay it without bound. lpm and dfs-weight pass
// over requests without a match, so one that waited longer than `max_wait_seconds` goes before all
// others, by arrival. With more than kMaxMatchedWaiting entries lpm and hrrn order as fcfs.
//
// The order is total and depends on the entries alone, not on the order they come in: arrivals
// differ, and random is a hash.
//
// Threading: thread-confined.
// Cost: fcfs of 1,000 entries takes about 10 us in order and 60 us shuffled; nothing is allocated
// once grown. Others: O(n log n) with slightly larger keys.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "scheduler/fair_share.h"
#include "scheduler/prefix_groups.h"
#include "scheduler/queue_policy.h"
#include "scheduler/waiting.h"

namespace heddle::scheduler {

struct QueueOrderOptions {
  QueuePolicy policy = QueuePolicy::kFcfs;
  bool by_priority = false;     // fcfs, lof and fair
  double max_wait_seconds = 5;  // lpm and dfs-weight; <= 0: no bound
  uint64_t seed = 0;            // random
};

class QueueOrder {
 public:
  explicit QueueOrder(const QueueOrderOptions& options) : options_(options) {}

  // Sorts `entries` in place. `pass` numbers the scheduling passes: random shuffles anew for each.
  // `shape` is read by dfs-weight and `fair` by fair only; there they may not be null (checked).
  void order(std::vector<Waiting>& entries, uint64_t pass, const PrefixShape* shape,
             const FairShare* fair);

 private:
  struct Key {
    int64_t first = 0;
    int64_t second = 0;
    int64_t third = 0;
    double fourth = 0;
    std::string_view text;
    int64_t arrival = 0;
    int32_t index = 0;
  };

  void fill_keys(const std::vector<Waiting>& entries, uint64_t pass, const PrefixShape* shape);
  void apply(std::vector<Waiting>& entries);

  QueueOrderOptions options_;
  PrefixGroups groups_;
  std::vector<Key> keys_;
  std::vector<int64_t> ranks_;
  std::vector<Waiting> sorted_;
};

}  // namespace heddle::scheduler
