// SPDX-License-Identifier: Apache-2.0
// RunningSet: the running sequences, each in its own batch slot, with their pages and states in the
// cache and the number of their tokens that steps were planned for.
//
// The life of a running sequence:
//
//   start() -> [plan_prefill() | plan_decode(), the step, complete() or abandon()]* -> remove()
//
// A step is planned before the one in flight is complete, so a running sequence has two lengths:
// Sequence::num_computed counts the tokens that completed steps computed, num_planned those that
// all planned steps will have computed. Drafts in flight count as if all were accepted. When their
// step is complete, the rejected ones are subtracted from num_planned; until then the sequence is
// not planned again.
//
// A chunk of a prompt scores the tokens from Sequence::next_scored on that it can. next_scored
// advances when a step is complete, so each token is scored once, however often its sequence
// restarts.
//
// A sequence that must leave while a step in flight uses its pages is marked (`leaving`): later
// plans ignore it, and it is removed after that step (is_removable()). So no page or slot is reused
// while a step still reads it.
//
// Threading:  confined to the engine thread.
// Invariants: check_invariants(). A RunningSequence stays at its address while it runs.
// Cost:       O(1) a call plus the cost of the cache's functions; remove() O(running).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/prefix_cache.h"
#include "request/batch_plan.h"
#include "request/sequence.h"
#include "request/step_limits.h"
#include "request/step_output.h"
#include "scheduler/step_time_model.h"
#include "speculative/draft_odds.h"
#include "speculative/draft_tree.h"

namespace heddle::scheduler {

enum class Leaving {
  kNo,
  kDone,       // released; all its computed tokens stay in the cache
  kAborted,    // released; the cache keeps only what was published before
  kRetracted,  // goes back to the queue because pages ran out
  kPreempted,  // goes back to the queue because of a more urgent request
  kPaused,     // goes back to the queue because the engine pauses
  kOutgrown,   // goes back to the queue to be computed again with the second rotary table
               // (longrope)
};

[[nodiscard]] constexpr bool returns_to_queue(Leaving leaving) {
  return leaving == Leaving::kRetracted || leaving == Leaving::kPreempted ||
         leaving == Leaving::kPaused || leaving == Leaving::kOutgrown;
}

// Drafts in the form of speculative::Drafts. `parents` may be longer than `tokens`: the entries of
// drafts that are not planned stay.
struct PlannedDrafts {
  std::span<const TokenId> tokens;
  std::span<const int32_t> parents;
  bool forced = false;  // forced by the answer's grammar; PlannedSequence::drafts_are_forced
};

struct RunningSequence {
  // Most tokens of one step that the answer's grammar forces; schemas rarely force longer texts.
  // The limit is halved after each step in which the model rejected the first forced token: after
  // three such steps in a row it is 0 and the sequence gets no more forced tokens.
  static constexpr int64_t kMostForced = 7;

  request::Sequence* sequence = nullptr;  // null: the batch slot is free
  int32_t batch_slot = 0;
  cache::CachedSequence cached;
  int64_t num_planned = 0;  // tokens that planned steps compute, steps that are complete included
  int32_t steps_in_flight = 0;
  int32_t draws_in_flight = 0;  // number of steps in flight that draw a token of this sequence
  int64_t drafts_in_flight = 0;
  bool forced_in_flight = false;      // the drafts in flight are tokens that the answer's grammar
                                      // forces
  int64_t most_forced = kMostForced;  // most forced tokens of the next step
  speculative::DraftOdds::AcceptanceTrend acceptance_trend;
  bool made_in_flight = false;      // a step in flight makes drafts for this sequence
  speculative::Drafts made_drafts;  // drafts that the runner made; they follow the sequence's last
                                    // token
  Leaving leaving = Leaving::kNo;

  // The data about the batch slot that earlier plans have sent to the runner:
  // The slot's parameters (SlotStart) were sent.
  bool sent = false;
  std::array<int64_t, ops::kMaxPageTables> sent_pages = {};  // number of pages sent, by page table

  // Set by the caller of start().
  double admitted_seconds = 0;
  int32_t tenant = 0;
  int64_t urgency = 0;                 // base urgency, without aging (urgency_of())
  bool returns_without_cache = false;  // the prefix it shares with the cache occupies pages that it
                                       // needs, so it starts again without the cache

  // Whether the sequence runs and takes part in the next plan.
  [[nodiscard]] bool stays() const { return sequence != nullptr && leaving == Leaving::kNo; }

  [[nodiscard]] bool is_released() const {
    return leaving == Leaving::kDone || leaving == Leaving::kAborted;
  }

  [[nodiscard]] bool is_removable() const {
    return leaving != Leaving::kNo && steps_in_flight == 0;
  }

  // The prompt is computed and another token is wanted: exactly one token of the sequence, drawn or
  // being drawn, is not planned yet.
  [[nodiscard]] bool can_decode() const {
    const int64_t drawn = sequence->num_output_tokens() + draws_in_flight;
    // The constraint allows tokens by the last one, so that one must be known.
    if (sequence->constraint != nullptr && draws_in_flight > 0) return false;
    return leaving == Leaving::kNo && !cached.starts && drawn > 0 &&
           drawn < sequence->request.stop.max_new_tokens &&
           sequence->num_tokens() + draws_in_flight - num_planned == 1;
  }

  // Some tokens of the prompt are not planned yet, and no draw is in flight.
  [[nodiscard]] bool can_prefill() const {
    return leaving == Leaving::kNo && draws_in_flight == 0 &&
           sequence->num_tokens() > num_planned && !can_decode();
  }
};

class RunningSet {
 public:
  // `cache` outlives the set.
  RunningSet(int32_t num_batch_slots, const request::StepLimits& limits, cache::PrefixCache& cache);

  [[nodiscard]] bool empty() const { return running_.empty(); }

  [[nodiscard]] int64_t size() const { return std::ssize(running_); }

  [[nodiscard]] int64_t num_free_slots() const { return std::ssize(free_slots_); }

  // Running sequences in the order of their start.
  [[nodiscard]] const std::vector<RunningSequence*>& sequences() const { return running_; }

  // The sequence in this batch slot, which must be in use (checked).
  [[nodiscard]] RunningSequence& in_slot(int32_t batch_slot);

  [[nodiscard]] bool any_can_decode() const;
  [[nodiscard]] bool any_can_prefill() const;
  [[nodiscard]] bool any_leaving() const;

  // The work of a step in which all sequences that can decode do so.
  [[nodiscard]] StepWork decode_work() const;

  // Assigns the sequence a free batch slot and everything else it needs to run
  // (PrefixCache::admit()); returns null and changes nothing if that fails. A batch slot must be
  // free. With `without_cache` the sequence shares no cached prefix and publishes nothing before
  // its end.
  [[nodiscard]] RunningSequence* start(request::Sequence& sequence, const cache::PrefixMatch& match,
                                       int64_t headroom, bool without_cache);

  // Allocates room for the next token of a stream and `num_drafts` drafts. Returns false and
  // changes nothing if there is none.
  [[nodiscard]] bool grow(const RunningSequence& running, int64_t num_drafts = 0);

  // grow() for page tables with a window. If it returns false, the sequence skips steps until the
  // last step of its prompt is confirmed.
  [[nodiscard]] bool grow_windows(RunningSequence& running, int64_t num_drafts = 0);

  // Frees the pages that have left the sliding windows. Returns whether it freed any.
  [[nodiscard]] bool shrink_windows();

  // Sets, for steps planned from now on, how many drafts the runner makes after prompts, and
  // whether prompts go through the draft network.
  void want_behind_prompts(int64_t num_drafts, bool network_follows) {
    wanted_behind_prompts_ = num_drafts;
    network_follows_prompts_ = network_follows;
  }

  // plan_decode() adds the next token of a stream to the plan, plan_prefill() the next tokens of a
  // prompt. Drafts follow a token that the host knows (checked). The runner is to make `num_wanted`
  // drafts after the draw. plan_decode() returns the number of drafts in the plan; a constrained
  // stream keeps only those that its grammar allows.
  int64_t plan_decode(RunningSequence& running, const PlannedDrafts& drafts, int64_t num_wanted,
                      request::BatchPlan& plan);
  void plan_prefill(RunningSequence& running, int64_t num_new_tokens, request::BatchPlan& plan);

  // Called when a step that computed the sequence's tokens ended. `drawn` is empty if the plan
  // draws none for it, `made` if no drafts were made. Publishes the computed pages and states.
  // Returns how many tokens were appended.
  [[nodiscard]] int64_t complete(const request::PlannedSequence& planned,
                                 std::span<const request::SampledToken> drawn,
                                 std::span<const request::MadeDraft> made = {});

  // Called for a failed step: its tokens were not computed, and the runner may have dropped the
  // data that the plan sent about the batch slot.
  void abandon(const request::PlannedSequence& planned);

  // Frees the batch slot, pages, state slots and locks of the sequence, which must be removable
  // (checked).
  void remove(RunningSequence& running);

  // Number of prompt tokens computed since the start of the engine.
  [[nodiscard]] int64_t prefilled_tokens() const { return prefilled_tokens_; }

  // The running sequences with their data in the cache, for PrefixCache::check_invariants().
  [[nodiscard]] std::vector<cache::AdmittedSequence> admitted() const;

  // Checks that slots, lengths and states agree with each other; aborts if not.
  void check_invariants(int64_t num_steps_in_flight) const;

 private:
  static void send_pages(RunningSequence& running, request::BatchPlan& plan);
  [[nodiscard]] request::PlannedSequence& add_planned(RunningSequence& running, bool sample,
                                                      request::BatchPlan& plan);
  static void want_drafts(RunningSequence& running, int64_t count, request::PlannedSequence& next);
  void add_masks(request::Sequence& sequence, const PlannedDrafts& drafts,
                 request::PlannedSequence& planned, request::BatchPlan& plan);

  request::StepLimits limits_;
  cache::PrefixCache& cache_;
  std::vector<RunningSequence> slots_;     // the running sequences, by batch slot
  std::vector<int32_t> free_slots_;        // free batch slots; the last one is assigned next
  std::vector<RunningSequence*> running_;  // running sequences in the order of their start
  int64_t prefilled_tokens_ = 0;
  int64_t wanted_behind_prompts_ = 0;
  bool network_follows_prompts_ = false;
  speculative::Drafts allowed_;  // scratch of add_masks()
  std::vector<int32_t> allowed_path_, kept_;
};

}  // namespace heddle::scheduler
