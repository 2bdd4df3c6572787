// SPDX-License-Identifier: Apache-2.0
// InBatchSharing: when several queued prompts begin with the same tokens and the cache does not
// have them yet, one goes first (the leader) so that the others (its followers) find them computed.
//
// Each pass starts with no remembered prompts and goes through the requests in queue order. A
// request that finds more than `check_tokens` in the cache is skipped. Any other is compared with
// the remembered prompts of its namespace: if it shares `deprioritize_tokens` or more with one of
// them, it is deprioritized and that one becomes its leader; else it is remembered itself.
//
// Remembered prompts are kept in lexicographic order. The longest common prefix with any of them is
// then the longest with one of the two neighbours, so that no tree is needed.
//
// A follower may also be held back while its leader computes (in_flight_sharing.h).
//
// Threading: thread-confined.
// Cost: O(n log n) comparisons of two prompts (Sequence::common_prefix(): their hashes, not their
// tokens); 8-byte moves on insertion.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "request/sequence.h"
#include "scheduler/queue_entry.h"

namespace heddle::scheduler {

struct InBatchSharingOptions {
  int64_t check_tokens = 32;         // requests with more cached tokens are skipped; negative:
                                     // sharing is off, no entry is marked
  int64_t deprioritize_tokens = 32;  // shared tokens from which a follower is deprioritized; at
                                     // least 1
  int64_t defer_tokens = 256;        // shared tokens from which waiting for the leader pays
  double defer_seconds = 0.5;        // longest wait, in seconds, for a leader that does not advance
};

class InBatchSharing {
 public:
  explicit InBatchSharing(const InBatchSharingOptions& options = {}) : options_(options) {}

  // Begins a pass. Sequences passed to add_running() and mark() must stay alive and unchanged until
  // the next begin().
  void begin();

  // Remembers a running sequence whose prompt is not cached yet: it can be a leader, like a queued
  // one. If several leaders share a prefix with a request, the longest wins, then the earliest
  // arrival.
  void add_running(const request::Sequence& sequence);

  // Fills in `deprioritized`, `leader` and `shared_tokens` of every entry. The entries must be in
  // queue order, with `matched_tokens` set.
  void mark(std::span<QueueEntry> entries);

  // Whether a follower gains by waiting for its leader instead of computing the prefix again, if
  // the leader has not advanced for that long. The caller asks only while the leader runs or was
  // admitted in this pass: otherwise no sequence computes the prefix.
  [[nodiscard]] bool waits_for_leader(const QueueEntry& follower,
                                      double seconds_without_progress) const;

 private:
  struct Share {
    const request::Sequence* leader = nullptr;
    int64_t tokens = 0;
    size_t position = 0;  // index in remembered_ at which the sequence would be inserted
  };

  [[nodiscard]] Share find(const request::Sequence& sequence) const;

  InBatchSharingOptions options_;
  std::vector<const request::Sequence*> remembered_;  // sorted by namespace, tokens, id
};

}  // namespace heddle::scheduler
