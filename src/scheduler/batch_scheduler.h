// SPDX-License-Identifier: Apache-2.0
// BatchScheduler: continuous batching over the prefix cache.
//
// A step, in this order:
//   1. Every decoding sequence gets a page for its next row if it needs one. When none can be had,
//      sequences are retracted (retraction_order.h) until there is one; the last one running is
//      never sent away for another's sake.
//   2. Decoding sequences: one token each, all of them.
//   3. Running sequences in prefill, in the order of their admission, share what is left of the
//      step's tokens and, with target_itl_ms, of its time (step_time_model.h).
//   4. Waiting sequences in the policy's order (queue_order.h), as long as the budget
//      (prefill_budget.h) and the pools have room. The first that does not fit stops the pass,
//      after an attempt at preemption (preemption.h): nobody overtakes. After a retraction only
//      those more urgent than the retracted one are admitted before somebody left, so that work is
//      not thrown away twice.
// Without mixed batches a step does either 1 and 2, or 3 and 4 (decode_interleave.h).
//
// A sequence whose prefix another one is computing right now waits for it, at most half a second
// (in_batch_sharing.h): the other one is asked to leave a snapshot where the two part.
//
// What a sequence holds is given back when no step in flight uses it: a sequence that is retracted,
// preempted or released while steps run is only marked, leaves later plans, and goes when the last
// of them is complete. So no page and no slot is ever reused under a running step.
//
// Liveness: when nothing runs, the first waiting sequence is admitted whatever the estimates say.
// Should the pools be so small that what it shares with the cache stands in its own way, it runs
// without the cache: then everything else can be evicted, and check_fits() has promised it room.
//
// Invariants beyond Scheduler's: see check_invariants().
// Cost: O(running + waiting) a step, plus matching for policies that read matches; allocates
// nothing
//       once its vectors have grown.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include <heddle/options.h>

#include "cache/prefix_cache.h"
#include "core/clock.h"
#include "scheduler/deadlines.h"
#include "scheduler/decode_interleave.h"
#include "scheduler/fair_share.h"
#include "scheduler/in_batch_sharing.h"
#include "scheduler/new_token_ratio.h"
#include "scheduler/preemption.h"
#include "scheduler/prefill_budget.h"
#include "scheduler/queue_limit.h"
#include "scheduler/queue_order.h"
#include "scheduler/queue_policy.h"
#include "scheduler/retraction_order.h"
#include "scheduler/scheduler.h"
#include "scheduler/step_time_model.h"

namespace heddle::scheduler {

// However slow the device, a step computes so many prompt tokens if there are any: a target for
// streams must not stop prompts.
inline constexpr int64_t kLeastChunkTokens = 64;

// A follower waits only for so many tokens more than it finds in the cache.
inline constexpr int64_t kMinSharedTokens = 256;

struct BatchSchedulerOptions {
  cache::PrefixCacheOptions cache;
  SchedulingOptions scheduling;
  int32_t max_running = 64;              // sequences in one step
  int64_t max_step_tokens = 512;         // new tokens of one step, prefill and decode together
  int64_t chunked_prefill_tokens = 512;  // prefill tokens of one step
  int32_t max_queued = 1024;             // waiting sequences that never ran, beside those that
                                         // find a place in the next step
  bool shares_in_flight = true;          // followers wait for their leader
  uint64_t random_seed = 0;              // of the policy `random`
};

class BatchScheduler final : public Scheduler {
 public:
  // Limits that contradict each other are lowered: max_running to the state slots and to
  // max_step_tokens, so that every running sequence can advance in every step. `clock` outlives the
  // scheduler. Error: kInvalidArgument for options that do not go together.
  static Result<std::unique_ptr<BatchScheduler>> create(const BatchSchedulerOptions& options,
                                                        const Clock& clock);

  [[nodiscard]] Status check_fits(const request::Sequence& sequence) const override;
  [[nodiscard]] Status check_call(
      std::span<const request::Sequence* const> sequences) const override;
  Status submit_all(std::span<request::Sequence* const> sequences) override;
  void plan(request::BatchPlan& plan) override;
  void complete(const request::BatchPlan& plan, const request::StepOutput& output) override;
  void abandon(const request::BatchPlan& plan) override;
  void release(request::Sequence& sequence, Ending ending) override;
  void take_dropped(std::vector<Dropped>& dropped) override;

  void retract_all() override;

  void set_paused(bool paused) override { paused_ = paused; }

  void clear_cache() override { cache_.clear(); }

  [[nodiscard]] SchedulerStats stats() const override;
  void check_invariants() const override;

  [[nodiscard]] const BatchSchedulerOptions& options() const { return options_; }

  [[nodiscard]] const cache::PrefixCache& cache() const { return cache_; }

 private:
  enum class Leaving {
    kNo,
    kDone,       // released, its end is kept
    kAborted,    // released, nothing new is kept
    kRetracted,  // goes back to the queue
    kPreempted,  // likewise
    kPaused,     // likewise, but not for want of anything
  };

  // A running sequence; its index is PlannedSequence::batch_slot.
  struct Row {
    request::Sequence* sequence = nullptr;
    cache::SequenceHold hold;
    int64_t num_planned = 0;  // tokens that submitted steps compute, those complete included
    int32_t steps_in_flight = 0;
    int32_t draws_in_flight = 0;
    Leaving leaving = Leaving::kNo;
    double admitted_seconds = 0;
    int32_t tenant = 0;
    int64_t urgency = 0;         // base
    bool returns_alone = false;  // what it shares with the cache stands in its own way
  };

  struct Queued {
    request::Sequence* sequence = nullptr;
    bool returned = false;
    bool alone = false;  // starts without the cache, this once
    int32_t tenant = 0;
    int64_t urgency = 0;       // base
    uint64_t match_epoch = 0;  // of the tree when it was matched; 0: never
    int64_t matched_tokens = 0;
    const void* match_node = nullptr;  // of this pass
    double deferred_since = -1;        // waits for a leader; negative: not yet
    bool short_of_room = false;        // the last pass had no row, memory or tokens of the step
    int64_t prefilled_at_arrival = 0;
  };

  // What a step was planned to do, until it is booked.
  struct PlannedStep {
    double planned_seconds = 0;
    StepWork work;
    int64_t num_sequences = 0;
    bool prefills = false;
  };

  BatchScheduler(const BatchSchedulerOptions& options, const QueuePolicyChoice& choice,
                 const Clock& clock);

  // batch_scheduler_arrival.cpp
  [[nodiscard]] Status check_tenants(std::span<request::Sequence* const> sequences);
  [[nodiscard]] int64_t num_places() const;

  // batch_scheduler_plan.cpp
  [[nodiscard]] bool can_decode(const Row& row) const;
  [[nodiscard]] bool can_prefill(const Row& row) const;
  int64_t plan_decoding(request::BatchPlan& plan);
  void plan_prefills(PrefillBudget& budget, request::BatchPlan& plan);
  [[nodiscard]] bool grow_or_retract(int32_t row);
  [[nodiscard]] bool retract_one();
  [[nodiscard]] bool shrink_windows();
  void add_decode(int32_t row, request::BatchPlan& plan);
  void add_prefill(int32_t row, int64_t num_new_tokens, request::BatchPlan& plan);
  [[nodiscard]] request::PlannedSequence planned(int32_t row, bool sample) const;

  // batch_scheduler_admission.cpp
  [[nodiscard]] PrefillBudget make_budget(int64_t num_decoding) const;
  [[nodiscard]] PrefillDemand demand(const request::Sequence& sequence,
                                     const cache::PrefixMatch& match) const;
  void order_waiting();
  void match_waiting();
  [[nodiscard]] bool admits() const;
  [[nodiscard]] bool preempts() const;
  void admit_waiting(PrefillBudget& budget, request::BatchPlan& plan);
  PrefillVerdict admit(const Queued& queued, const cache::PrefixMatch& match, PrefillBudget& budget,
                       request::BatchPlan& plan);
  [[nodiscard]] bool start(const Queued& queued, const cache::PrefixMatch& match, int64_t headroom);
  void admit_first(request::BatchPlan& plan);
  void mark_followers();
  void ask_for_forks(Row& leader);
  [[nodiscard]] int64_t fork_of(const Waiting& follower) const;
  [[nodiscard]] bool defers(Queued& queued, const Waiting& entry, const cache::PrefixMatch& match);
  void preempt_for(const Queued& queued, const cache::PrefixMatch& match,
                   const PrefillBudget& budget);

  // batch_scheduler_pace.cpp
  [[nodiscard]] StepWork streaming_work() const;
  void begin_pace(const StepWork& streams);
  [[nodiscard]] int64_t paced_tokens(const PrefillBudget& budget, int64_t context_tokens) const;
  void note_speed();

  // batch_scheduler.cpp
  void settle(const request::PlannedSequence& planned, const request::SampledToken* sampled);
  void leave(int32_t row, Leaving how);
  void give_back(int32_t row);
  [[nodiscard]] bool out_of_time(const request::Sequence& sequence, bool queued, double now,
                                 Status& reason) const;

  BatchSchedulerOptions options_;
  QueuePolicyChoice choice_;
  const Clock* clock_;
  cache::PrefixCache cache_;
  QueueOrder order_;
  InBatchSharing leaders_;    // for the order: a leader goes first
  InBatchSharing followers_;  // for admission: a follower waits
  FairShare fair_;
  NewTokenRatio ratio_;
  DecodeInterleave interleave_;
  PreemptionRules preemption_rules_;
  ServiceRates rates_;

  std::vector<Row> rows_;  // by row
  std::vector<int32_t> free_rows_;
  std::vector<int32_t> running_;  // rows, in the order of admission
  std::vector<Queued> waiting_;   // ordered anew in every pass
  std::vector<Dropped> displaced_;
  std::vector<PlannedStep> plans_in_flight_;  // oldest first
  PlannedStep planned_;                       // the step being planned
  double last_step_seconds_ = 0;              // when the last step ended
  StepTimeModel step_times_;
  double prefill_seconds_ = 0;  // what is left of the step being planned; infinite: no target

  bool paused_ = false;
  uint64_t pass_ = 0;
  int64_t last_id_;
  bool admission_paused_ = false;  // from a retraction until somebody leaves
  int64_t paused_urgency_ = 0;     // of the retracted one: those above it need not wait
  bool any_time_limits_ = false;
  int64_t prefilled_tokens_ = 0;  // since the start
  int64_t num_retractions_ = 0;
  int64_t num_preemptions_ = 0;
  int64_t retracted_tokens_ = 0;
  int64_t num_deferred_ = 0;

  // Scratch.
  std::vector<Waiting> entries_;
  std::vector<Queued> sorted_;
  std::vector<RetractionCandidate> retraction_candidates_;
  std::vector<PreemptionCandidate> preemption_candidates_;
  std::vector<int32_t> retraction_rows_;
  std::vector<int32_t> candidate_rows_;
  std::vector<int32_t> chosen_;
  std::vector<QueuedRequest> queued_requests_;
  std::vector<QueuedRequest> arriving_requests_;
  std::vector<std::string_view> arriving_tenants_;
};

}  // namespace heddle::scheduler
