// SPDX-License-Identifier: Apache-2.0
// InFlightSharing: a waiting sequence whose prefix a running one is computing right now waits for
// it and then finds the prefix in the cache. The running one, its leader, is asked to leave a
// snapshot where the two part. However slow the machine is, the leader is ahead: its follower gives
// up only when no tokens of the leader were planned for half a second.
//
// A pass: mark() after the queue was ordered; ask_for_forks() for a sequence that starts in the
// pass; defers() for every waiting sequence that could be admitted.
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
  // Disabled, mark() does nothing. `cache` outlives the object.
  InFlightSharing(bool enabled, const cache::PrefixCache& cache);

  // Finds the entries that begin like a running prompt or like an earlier entry, and asks the
  // running ones for snapshots where the two part.
  void mark(std::span<QueueEntry> entries, const RunningSet& running);

  // Asks `leader` for a snapshot where each of the entries that follow it parts from it.
  void ask_for_forks(RunningSequence& leader, std::span<const QueueEntry> entries) const;

  // Whether the sequence, which finds `match` in the cache, is to wait for its leader. Notes when
  // the wait began and how far the leader is.
  [[nodiscard]] bool defers(WaitingSequence& waiting, const QueueEntry& entry,
                            const cache::PrefixMatch& match, const RunningSet& running,
                            double now_seconds);

  // False: defers() is false for the sequence in this pass.
  [[nodiscard]] bool may_defer(const QueueEntry& entry, const cache::PrefixMatch& match) const {
    return entry.leader != kNoLeader &&
           fork_of(entry) >= match.usable_tokens + cache_.options().grid;
  }

  // Sequences that waited for a leader, since the start.
  [[nodiscard]] int64_t num_deferred() const { return num_deferred_; }

 private:
  [[nodiscard]] int64_t fork_of(const QueueEntry& follower) const;

  bool enabled_;
  const cache::PrefixCache& cache_;
  InBatchSharing followers_;
  int64_t num_deferred_ = 0;
};

}  // namespace heddle::scheduler
