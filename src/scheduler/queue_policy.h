// SPDX-License-Identifier: Apache-2.0
// The names of the queue policies, and which options go together.
#pragma once

#include <cstdint>
#include <string_view>

#include <heddle/options.h>
#include <heddle/status.h>

namespace heddle::scheduler {

enum class QueuePolicy {
  kFcfs,                  // first come, first served
  kLpm,                   // longest prefix match first
  kDfsWeight,             // requests below the same part of the prefix tree together
  kLof,                   // longest output first, by max_new_tokens
  kRandom,                // shuffled anew in every pass
  kRoutingKey,            // keys that run already, most running first
  kHrrn,                  // highest response ratio next: waited work over own work
  kShortestPrefillFirst,  // fewest uncached tokens first
  kFair,                  // fair_share.h
};

// The option's spelling: "dfs-weight".
[[nodiscard]] std::string_view to_string(QueuePolicy policy);

// Whether the order depends on what the prefix cache holds.
[[nodiscard]] bool uses_prefix_cache(QueuePolicy policy);

// Beyond this many waiting requests lpm and hrrn order like fcfs, and nobody is matched for the
// sake of the order: matching costs time for every queued token.
constexpr int64_t kMaxMatchedWaiting = 128;

// Whether order() reads the matches of `num_waiting` requests.
[[nodiscard]] bool reads_matches(QueuePolicy policy, int64_t num_waiting);

struct QueuePolicyChoice {
  QueuePolicy policy = QueuePolicy::kFcfs;
  bool by_priority = false;             // urgency comes before the policy's own key
  bool replaced_without_cache = false;  // asked for a policy that needs the prefix cache, which is
                                        // off: `policy` is fcfs now. Worth one line in the log
};

// Reads `policy`, `enable_priority` and the numbers beside them. "priority" is fcfs with priority.
// Errors, kInvalidArgument: an unknown name (the message lists those there
// are); priorities with a
// policy other than fcfs, lof and fair; a number out of its range.
[[nodiscard]] Result<QueuePolicyChoice> choose_queue_policy(const SchedulingOptions& options,
                                                            bool prefix_cache_enabled);

}  // namespace heddle::scheduler
