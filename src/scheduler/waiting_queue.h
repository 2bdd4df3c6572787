// SPDX-License-Identifier: Apache-2.0
// WaitingQueue: the sequences that wait for a batch slot, new ones and retracted ones, and the
// order in which they start.
//
// The life of a waiting sequence:
//
//   submit_all() or take_back() -> [order(), an attempt to admit it]* -> remove_at() when it runs,
//   or remove() when it is released
//
// A full queue refuses a call, or with priorities displaces less urgent sequences (queue_limit.h).
//
// Threading:  confined to the engine thread, except check_call(), which is thread-safe.
// Invariants: check_invariants(). A waiting sequence owns no pages, slots or state.
// Cost:       submit_all() and order() O(waiting), plus the policy's sort (queue_order.h) and, for
//             policies that read them, at most kMaxMatchedWaiting matches; allocates nothing once
//             its vectors have grown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <heddle/options.h>
#include <heddle/status.h>

#include "cache/prefix_cache.h"
#include "request/sequence.h"
#include "scheduler/deadlines.h"
#include "scheduler/fair_share.h"
#include "scheduler/in_batch_sharing.h"
#include "scheduler/queue_entry.h"
#include "scheduler/queue_limit.h"
#include "scheduler/queue_order.h"
#include "scheduler/queue_policy.h"
#include "scheduler/running_set.h"
#include "scheduler/scheduler.h"

namespace heddle::scheduler {

struct WaitingQueueOptions {
  QueuePolicyChoice choice;
  SchedulingOptions scheduling;
  int32_t max_queued = 1024;  // most waiting sequences that never ran, not counting those that get
                              // a batch slot in the next step
  uint64_t random_seed = 0;   // seed of the policy `random`
};

struct WaitingSequence {
  request::Sequence* sequence = nullptr;
  bool returned = false;       // the sequence was retracted or preempted before
  bool without_cache = false;  // the next start must not share pages with the cache
  int32_t tenant = 0;
  int64_t urgency = 0;       // base urgency, without aging (urgency_of())
  uint64_t match_epoch = 0;  // the prefix tree's epoch at the last match; 0: never matched
  int64_t matched_tokens = 0;
  const void* match_node = nullptr;  // deepest matched node of the prefix tree, valid in this pass
                                     // only
  double deferred_since = -1;        // when the sequence began to wait for its leader, in seconds;
                                     // negative: it does not wait
  int64_t leader_tokens = 0;         // the leader's planned tokens when the leader last advanced
  double leader_moved_at = 0;        // when the leader last advanced, in seconds
  bool short_of_room = false;        // the last pass lacked a batch slot, memory or tokens for the
                                     // sequence
  int64_t prefilled_at_arrival = 0;  // RunningSet::prefilled_tokens() when the sequence arrived
};

class WaitingQueue {
 public:
  // `cache` and `fair` outlive the queue.
  WaitingQueue(const WaitingQueueOptions& options, const cache::PrefixCache& cache,
               FairShare& fair);

  [[nodiscard]] bool empty() const { return waiting_.empty(); }

  [[nodiscard]] size_t size() const { return waiting_.size(); }

  // Sequence `index` in the order of the last order(); deferred sequences come last.
  [[nodiscard]] WaitingSequence& operator[](size_t index) { return waiting_[index]; }

  [[nodiscard]] const std::vector<WaitingSequence>& sequences() const { return waiting_; }

  // See Scheduler::check_call(). `num_batch_slots` is the number of free batch slots when nothing
  // runs.
  [[nodiscard]] Status check_call(std::span<const request::Sequence* const> sequences,
                                  int64_t num_batch_slots) const;

  // Queues the sequences of one call, all or none. Errors: those of Scheduler::submit_all(), except
  // those of check_fits().
  [[nodiscard]] Status submit_all(std::span<request::Sequence* const> sequences,
                                  const RunningSet& running);

  // Queues a retracted or preempted sequence again. The queue's limits do not apply to it.
  void take_back(const WaitingSequence& returned);

  // Removes a waiting sequence that was released (checked to be in the queue).
  void remove(const request::Sequence& sequence);

  // Removes the sequence at `index`, which now runs. The entries of the last order() stay valid.
  void remove_at(size_t index);

  // Moves the sequences that more urgent arrivals displaced to the end of `dropped`.
  void take_displaced(std::vector<Dropped>& dropped);

  // Called when a displaced sequence was released: take_displaced() no longer reports it.
  void forget_displaced(const request::Sequence& sequence);

  // While paused, num_open_slots() is 0 for arriving sequences.
  void set_paused(bool paused) { paused_ = paused; }

  // See Scheduler::defer_arrivals().
  void defer_arrivals(bool defer);

  [[nodiscard]] int64_t num_deferred_arrivals() const;

  // Batch slots that arriving sequences would get in the next plan: 0 while a waiting sequence
  // lacks a slot, memory or tokens, or while arrivals are deferred. A sequence that waits for its
  // leader or for its tenant's limit leaves them open.
  [[nodiscard]] int64_t num_open_slots(const RunningSet& running) const;

  // Begins a pass of the scheduler. The policy `random` shuffles anew in each pass.
  void begin_pass() { ++pass_; }

  // Sorts the queue by the policy; deferred arrivals take no part.
  void order(const RunningSet& running, const ServiceRates& rates, double now_seconds);

  // The entries of the last order(), sorted, without deferred arrivals. Sequences may have left the
  // queue since then.
  [[nodiscard]] std::span<QueueEntry> entries() { return entries_; }

  // Marks all waiting sequences as short of room. Admission clears the mark of sequences that wait
  // for something else.
  void expect_no_room();

  void check_invariants() const;

 private:
  [[nodiscard]] bool is_deferred(const WaitingSequence& waiting) const {
    return deferred_after_ && waiting.sequence->id > *deferred_after_;
  }

  [[nodiscard]] Status check_arrivals(std::span<request::Sequence* const> sequences);
  [[nodiscard]] Status check_tenants(std::span<request::Sequence* const> sequences,
                                     int64_t num_open_slots);
  [[nodiscard]] Status check_queue(int64_t num_open_slots);
  void match_waiting();
  [[nodiscard]] int64_t top_urgency(const RunningSet& running) const;
  [[nodiscard]] QueueEntry entry_of(size_t index, const RunningSet& running,
                                    const ServiceRates& rates, double now_seconds,
                                    int64_t top_urgency) const;

  WaitingQueueOptions options_;
  const cache::PrefixCache& cache_;
  FairShare& fair_;
  QueueOrder order_;
  InBatchSharing leaders_;  // finds prompts that begin alike: the order puts their leader first
  std::vector<WaitingSequence> waiting_;
  std::vector<QueueEntry> entries_;
  std::vector<Dropped> displaced_;
  bool paused_ = false;
  uint64_t pass_ = 0;
  int64_t last_id_;
  std::optional<int64_t> deferred_after_;  // sequences with a larger id are deferred; no value:
                                           // none is deferred

  // Scratch memory of the functions above, kept to avoid allocations.
  std::vector<WaitingSequence> sorted_;
  std::vector<QueuedRequest> queued_requests_;
  std::vector<QueuedRequest> arriving_requests_;
  std::vector<std::pair<std::string_view, const TenantTerms*>> arriving_tenants_;
  std::vector<int32_t> chosen_;
};

}  // namespace heddle::scheduler
