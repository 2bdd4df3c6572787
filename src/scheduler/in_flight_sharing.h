// SPDX-License-Identifier: Apache-2.0
// InFlightSharing: a waiting sequence whose prefix a running sequence is computing right now waits
// for that one (its leader) and then finds the prefix in the cache. The leader is asked for a
// snapshot at the token where the two prompts part. Because the leader is always ahead, however
// slow the machine is, the follower stops waiting only when the leader got no tokens planned for
// 0.5 s.
//
// A pass calls mark() after the queue was ordered, ask_for_forks() for each sequence that starts in
// the pass, and defers() for every waiting sequence that could be admitted.
//
// Threading: confined to the engine thread.
// Cost: mark() O(n log n) comparisons of prompts (in_batch_sharing.h), of at most
// kMaxMatchedWaiting waiting sequences and those that run; ask_for_forks() O(entries), defers()
// O(running).
#pragma once

#include <cstdint>
#include <span>

#include "cache/prefix_cache.h"
#include "scheduler/in_batch_sharing.h"
#include "scheduler/queue_entry.h"
#include "scheduler/running_set.h"
#include "scheduler/waiting_queue.h"

namespace heddle::scheduler {

// A follower waits only for at least this many tokens more than it finds in the cache.
inline constexpr int64_t kMinSharedTokens = 256;

class InFlightSharing {
 public:
  // With enabled = false mark() does nothing. `cache` outlives the object.
  InFlightSharing(bool enabled, const cache::PrefixCache& cache);

  // Finds the entries that begin like a running prompt or like an earlier entry, and asks the
  // running sequences for snapshots at the tokens where the prompts part.
  void mark(std::span<QueueEntry> entries, const RunningSet& running);

  // Asks `leader` for a snapshot at each token where one of its followers in `entries` parts from
  // it.
  void ask_for_forks(RunningSequence& leader, std::span<const QueueEntry> entries) const;

  // Whether the sequence, which finds `match` in the cache, should wait for its leader. Records
  // when the wait began and how many tokens of the leader are planned.
  [[nodiscard]] bool defers(WaitingSequence& waiting, const QueueEntry& entry,
                            const cache::PrefixMatch& match, const RunningSet& running,
                            double now_seconds);

  // A quick check: if it returns false, defers() is false for the sequence in this pass.
  [[nodiscard]] bool may_defer(const QueueEntry& entry, const cache::PrefixMatch& match) const {
    return entry.leader != kNoLeader &&
           fork_of(entry) >= match.usable_tokens + cache_.options().grid;
  }

  // Number of sequences that waited for a leader since the start of the engine.
  [[nodiscard]] int64_t num_deferred() const { return num_deferred_; }

 private:
  [[nodiscard]] int64_t fork_of(const QueueEntry& follower) const;

  bool enabled_;
  const cache::PrefixCache& cache_;
  InBatchSharing followers_;
  int64_t num_deferred_ = 0;
};

}  // namespace heddle::scheduler
