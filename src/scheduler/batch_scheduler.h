// SPDX-License-Identifier: Apache-2.0
// BatchScheduler: continuous batching over the prefix cache. It owns the parts listed below and
// moves sequences between them; each part makes one kind of decision.
//
//   WaitingQueue     which sequences wait, and in what order (waiting_queue.h)
//   RunningSet       which sequences run, and what steps compute for them (running_set.h)
//   Admission        which prompts a step computes, and which sequences start (admission.h)
//   InFlightSharing  which sequences wait for a prefix that is being computed
//   Preemption       which running sequences go back to the queue (preemption.h)
//   StepPace         how long steps take, and how much of that prompts may use (pace.h)
//   FairShare        how much each tenant was served (fair_share.h)
//   TimeLimits       which sequences ran out of time (deadlines.h)
//
// A step, in this order:
//   1. Every decoding sequence gets a page for its next token if it needs one. If no page is free,
//      sequences are retracted until one is; the last running sequence is never retracted for
//      another. A sequence that outgrows its table of rotary frequencies also returns to the queue.
//   2. All decoding sequences compute one token each, and the drafts for which there are pages.
//      Drafts come from a drafter or are forced by the answer's grammar. They get at most
//      StepLimits::max_draft_rows rows, and half of the rows that the streams leave free; no
//      sequence is retracted for them.
//   3. Running sequences in prefill, in the order of their admission, share the remaining tokens of
//      the step and, with target_itl_ms, its remaining time. A quarter of the tokens is reserved
//      for short prompts that wait (Admission::choose_short_prompts()).
//   4. Waiting sequences start in the policy's order while the budget and the pools have room. The
//      first that does not fit ends the pass, after an attempt at preemption. If only the step's
//      tokens are used up, short prompts may still overtake it.
// Without mixed batches a step does either 1 and 2, or 3 and 4 (DecodeInterleave).
//
// The memory of a sequence is released when no step in flight uses it. A sequence that is
// retracted, preempted or released while steps run is only marked: later plans ignore it, and it is
// removed when the last of these steps is complete.
//
// Invariants: those of Scheduler, and those in the check_invariants() of each part.
// Cost: O(running + waiting) a step, plus matching for policies that read matches; allocates
//       nothing once its vectors have grown.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <heddle/options.h>

#include "cache/prefix_cache.h"
#include "core/clock.h"
#include "scheduler/admission.h"
#include "scheduler/deadlines.h"
#include "scheduler/fair_share.h"
#include "scheduler/in_flight_sharing.h"
#include "scheduler/pace.h"
#include "scheduler/preemption.h"
#include "scheduler/queue_policy.h"
#include "scheduler/running_set.h"
#include "scheduler/scheduler.h"
#include "scheduler/stream_drafts.h"
#include "scheduler/waiting_queue.h"
#include "speculative/draft_odds.h"
#include "speculative/drafter.h"

namespace heddle::scheduler {

struct BatchSchedulerOptions {
  cache::PrefixCacheOptions cache;
  SchedulingOptions scheduling;
  int32_t max_running = 64;  // most sequences in one step
  request::StepLimits limits{.max_tokens = 512};
  int64_t chunked_prefill_tokens = 512;  // most prompt tokens in one step
  int32_t max_queued = 1024;             // most waiting requests that never ran;
                                         // WaitingQueueOptions::max_queued
  bool shares_in_flight = true;          // a sequence waits for a running one that computes the
                                         // same prefix
  uint64_t random_seed = 0;              // seed of the policy `random`
  int64_t max_drafts = 0;                // most drafts of a drafter per sequence and step; 0: no
                                         // drafter
  bool adapts_drafts = true;             // verify only as many drafts as save time
                                         // (speculative/draft_cost.h)
};

class BatchScheduler final : public Scheduler {
 public:
  // Limits that contradict each other are lowered: max_running to the number of state slots and to
  // limits.max_tokens, so that every running sequence can advance in every step. `clock` outlives
  // the scheduler. Without `drafter` the scheduler proposes no drafts. Error: kInvalidArgument for
  // options that exclude each other.
  static Result<std::unique_ptr<BatchScheduler>> create(
      const BatchSchedulerOptions& options, const Clock& clock,
      std::unique_ptr<speculative::Drafter> drafter = nullptr);

  [[nodiscard]] Status check_fits(const request::Sequence& sequence) const override;
  [[nodiscard]] Status check_call(
      std::span<const request::Sequence* const> sequences) const override;
  Status submit_all(std::span<request::Sequence* const> sequences) override;
  void plan(request::BatchPlan& plan) override;
  bool awaits_draws() override;
  void complete(const request::BatchPlan& plan, const request::StepOutput& output) override;
  void abandon(const request::BatchPlan& plan) override;
  void release(request::Sequence& sequence, Ending ending) override;
  void take_dropped(std::vector<Dropped>& dropped) override;

  void retract_all() override;

  void set_paused(bool paused) override { waiting_.set_paused(paused); }

  void defer_arrivals(bool defer) override { waiting_.defer_arrivals(defer); }

  void clear_cache() override { cache_.clear(); }

  void catch_up() override { cache_.evict_owed(); }

  [[nodiscard]] SchedulerStats stats() const override;

  [[nodiscard]] const cache::PrefixCache* prefix_cache() const override { return &cache_; }

  void check_invariants() const override;

  [[nodiscard]] const BatchSchedulerOptions& options() const { return options_; }

  [[nodiscard]] const cache::PrefixCache& cache() const { return cache_; }

 private:
  BatchScheduler(const BatchSchedulerOptions& options, const QueuePolicyChoice& choice,
                 const Clock& clock, std::unique_ptr<speculative::Drafter> drafter);

  void find_streams();
  int64_t plan_streams(request::BatchPlan& plan, StepWork& work);
  [[nodiscard]] int64_t wanted_with_room(RunningSequence& running, int64_t num_drafts,
                                         int64_t num_wanted);
  [[nodiscard]] bool has_room_for(RunningSequence& running, int64_t num_drafts);
  void plan_prompts(int64_t num_decode_rows, const StepWork& streams, request::BatchPlan& plan);
  [[nodiscard]] bool make_room_for_next_token(RunningSequence& running);
  [[nodiscard]] bool retract_one();
  void judge_drafts(const request::PlannedSequence& planned,
                    std::span<const request::SampledToken> drawn);
  void leave(RunningSequence& running, Leaving how);
  void remove(RunningSequence& running);

  BatchSchedulerOptions options_;
  const Clock* clock_;
  cache::PrefixCache cache_;
  FairShare fair_;
  WaitingQueue waiting_;
  RunningSet running_;
  InFlightSharing sharing_;
  StepPace pace_;
  DecodeInterleave interleave_;
  Admission admission_;
  Preemption preemption_;
  TimeLimits time_limits_;

  int64_t num_retractions_ = 0;
  int64_t retracted_input_tokens_ = 0;
  int64_t retracted_output_tokens_ = 0;
  int64_t num_preemptions_ = 0;
  int64_t preempted_tokens_ = 0;
  speculative::DraftOdds draft_odds_;
  StreamDrafts drafts_;
  std::vector<RunningSequence*> decoding_;  // streams of this step; without mixed batches, of the
                                            // next decode step
};

}  // namespace heddle::scheduler
