// SPDX-License-Identifier: Apache-2.0
// InBatchSharing: when several queued prompts begin with the same tokens and the cache does not
// have them yet, one goes first (the leader) so that the others (its followers) find them computed.
//
// Per pass, in queue order, beginning with nothing remembered: a request that finds more than
// `check_tokens` in the cache is left alone. Another is compared with those remembered before it in
// this pass, in its namespace only: if it shares `deprioritize_tokens` or more with one of them, it
// is deprioritized and that one leads it; else it is remembered itself.
//
// The remembered prompts stand in lexicographic order: the longest common prefix with all of them
// is the longest with the two neighbours, so that no tree is needed.
//
// Beyond the order, a follower may be kept waiting while its leader computes (in_flight_sharing.h).
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
  int64_t check_tokens = 32;         // negative: sharing is off, no entry is marked
  int64_t deprioritize_tokens = 32;  // at least 1
  int64_t defer_tokens = 256;        // waiting for a leader pays from this share on
  double defer_seconds = 0.5;        // while the leader stands still no longer than this
};

class InBatchSharing {
 public:
  explicit InBatchSharing(const InBatchSharingOptions& options = {}) : options_(options) {}

  // Begins a pass. Sequences passed to add_running() and mark() must stay alive and unchanged until
  // the next one.
  void begin();

  // A running sequence whose prompt is not cached yet can be a leader, like a queued one. If
  // running leaders share prefixes, the longest match wins, then the earliest arrival.
  void add_running(const request::Sequence& sequence);

  // Fills in `deprioritized`, `leader` and `shared_tokens` of every entry; the entries come in
  // queue order and `matched_tokens` is set.
  void mark(std::span<QueueEntry> entries);

  // Whether a follower is better off waiting for its leader than computing the same again, when the
  // leader has stood still for so long. The caller asks only while the leader is running or was
  // admitted in this pass: otherwise no sequence computes the prefix.
  [[nodiscard]] bool waits_for_leader(const QueueEntry& follower,
                                      double seconds_without_progress) const;

 private:
  struct Share {
    const request::Sequence* leader = nullptr;
    int64_t tokens = 0;
    size_t position = 0;  // where the sequence would be inserted
  };

  [[nodiscard]] Share find(const request::Sequence& sequence) const;

  InBatchSharingOptions options_;
  std::vector<const request::Sequence*> remembered_;  // by namespace, tokens, id
};

}  // namespace heddle::scheduler
