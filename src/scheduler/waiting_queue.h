// SPDX-License-Identifier: Apache-2.0
// WaitingQueue: the sequences that wait for a batch slot, new ones and those that ran before, and
// the order in which they get one.
//
// The life of a waiting sequence:
//
//   submit_all() or take_back() -> [order(), an attempt to admit it]* -> remove_at() when it runs,
//   or remove() when it is released
//
// A full queue refuses a call, or with priorities displaces less urgent sequences (queue_limit.h).
//
// Threading:  confined to the engine thread, except check_call(), which is thread-safe.
// Invariants: check_invariants(). Every sequence in it owns nothing: no pages, slots or state.
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
  int32_t max_queued = 1024;  // waiting sequences that never ran, beside those that get a batch
                              // slot in the next step
  uint64_t random_seed = 0;   // for the policy `random`
};

struct WaitingSequence {
  request::Sequence* sequence = nullptr;
  bool returned = false;       // retracted or preempted before
  bool without_cache = false;  // ignores the cache the next time it starts
  int32_t tenant = 0;
  int64_t urgency = 0;       // base
  uint64_t match_epoch = 0;  // the tree's epoch when it was matched; 0: never
  int64_t matched_tokens = 0;
  const void* match_node = nullptr;  // set in this pass
  double deferred_since = -1;  // when it began to wait for a leader; negative: it does not wait
  int64_t leader_tokens = 0;   // the leader's planned tokens when it last advanced
  double leader_moved_at = 0;  // seconds, once the wait began
  bool short_of_room = false;  // the last pass had no batch slot, memory or tokens for it
  int64_t prefilled_at_arrival = 0;  // RunningSet::prefilled_tokens()
};

class WaitingQueue {
 public:
  // `cache` and `fair` outlive the queue.
  WaitingQueue(const WaitingQueueOptions& options, const cache::PrefixCache& cache,
               FairShare& fair);

  [[nodiscard]] bool empty() const { return waiting_.empty(); }

  [[nodiscard]] size_t size() const { return waiting_.size(); }

  // As of the last order(), the first of the order first and deferred ones last.
  [[nodiscard]] WaitingSequence& operator[](size_t index) { return waiting_[index]; }

  [[nodiscard]] const std::vector<WaitingSequence>& sequences() const { return waiting_; }

  // See Scheduler::check_call(); `num_batch_slots` are free when nothing runs.
  [[nodiscard]] Status check_call(std::span<const request::Sequence* const> sequences,
                                  int64_t num_batch_slots) const;

  // Queues the sequences of one call, all or none. Errors: as Scheduler::submit_all(), except
  // those of check_fits().
  [[nodiscard]] Status submit_all(std::span<request::Sequence* const> sequences,
                                  const RunningSet& running);

  // A sequence that ran comes back. The queue's limits do not apply to it.
  void take_back(const WaitingSequence& returned);

  // A waiting sequence is released (checked to be here).
  void remove(const request::Sequence& sequence);

  // The sequence at `index` runs. The entries of the last order() stay.
  void remove_at(size_t index);

  // Moves the sequences that a more urgent arrival displaced to the end of `dropped`.
  void take_displaced(std::vector<Dropped>& dropped);

  // Such a sequence was released: it is not to be reported any more.
  void forget_displaced(const request::Sequence& sequence);

  // In a pause arriving sequences find no open slot.
  void set_paused(bool paused) { paused_ = paused; }

  // See Scheduler::defer_arrivals().
  void defer_arrivals(bool defer);

  [[nodiscard]] int64_t num_deferred_arrivals() const;

  // Batch slots that arriving sequences would get in the next plan: none while a waiting sequence
  // is short of room or arrivals are deferred. A sequence that waits for its leader or for its own
  // tenant leaves them open.
  [[nodiscard]] int64_t num_open_slots(const RunningSet& running) const;

  // A pass of the scheduler begins: the policy `random` shuffles anew.
  void begin_pass() { ++pass_; }

  // Orders the queue by the policy, without deferred arrivals.
  void order(const RunningSet& running, const ServiceRates& rates, double now_seconds);

  // The entries of the last order(), in its order and without deferred arrivals: since then
  // sequences may have left.
  [[nodiscard]] std::span<QueueEntry> entries() { return entries_; }

  // Marks all as short of room; admission corrects it for those that wait for something else.
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
  InBatchSharing leaders_;  // for the order: a leader goes first
  std::vector<WaitingSequence> waiting_;
  std::vector<QueueEntry> entries_;
  std::vector<Dropped> displaced_;
  bool paused_ = false;
  uint64_t pass_ = 0;
  int64_t last_id_;
  std::optional<int64_t> deferred_after_;  // larger ids are deferred; none: none are

  // Scratch.
  std::vector<WaitingSequence> sorted_;
  std::vector<QueuedRequest> queued_requests_;
  std::vector<QueuedRequest> arriving_requests_;
  std::vector<std::pair<std::string_view, const TenantTerms*>> arriving_tenants_;
  std::vector<int32_t> chosen_;
};

}  // namespace heddle::scheduler
