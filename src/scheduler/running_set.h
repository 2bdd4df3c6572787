// SPDX-License-Identifier: Apache-2.0
// RunningSet: the sequences that run, each in a batch slot of its own, with what they keep in the
// cache and how far steps have been planned for them.
//
// The life of a running sequence:
//
//   start() -> [plan_prefill() | plan_decode(), the step, complete() or abandon()]* -> remove()
//
// A step is planned before the one in flight is complete. So a running sequence has two lengths:
// Sequence::num_computed counts the tokens that completed steps computed, num_planned those that
// all planned steps will have computed. Drafts count as if all were accepted: between the two, the
// number of tokens is certain only when the step is complete, and num_planned then takes back what
// was rejected. A sequence with drafts in flight is not planned again before that.
//
// A chunk of a prompt scores what Sequence::next_scored wants of it. That advances when a step is
// complete, so that a token is scored once, however often its sequence starts again.
//
// A sequence that is to leave while a step in flight uses its pages is marked (`leaving`), takes no
// part in later plans, and is removed after that step (is_removable()). So no page and no slot is
// ever used again under a running step.
//
// Threading:  confined to the engine thread.
// Invariants: check_invariants(). A RunningSequence stays at its address while it runs.
// Cost:       O(1) a call, except for what the cache does; remove() O(running).
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
  kDone,       // released; all it computed stays in the cache
  kAborted,    // released; the cache keeps only what was published
  kRetracted,  // goes back to the queue because pages ran out
  kPreempted,  // goes back to the queue because of a more urgent request
  kPaused,     // goes back to the queue for a pause of the engine
  kOutgrown,   // goes back to the queue to be computed with the second table (longrope)
};

[[nodiscard]] constexpr bool returns_to_queue(Leaving leaving) {
  return leaving == Leaving::kRetracted || leaving == Leaving::kPreempted ||
         leaving == Leaving::kPaused || leaving == Leaving::kOutgrown;
}

// Some drafts as speculative::Drafts has them; parents of drafts that are not planned may be there.
struct PlannedDrafts {
  std::span<const TokenId> tokens;
  std::span<const int32_t> parents;
  bool forced = false;  // PlannedSequence::drafts_are_forced
};

struct RunningSequence {
  // Tokens of one step that the form of the answer forces: nearly all texts that schemas force are
  // shorter. Half as many after each step in which the model spelled the text otherwise from the
  // first token on: after three in a row it is left alone.
  static constexpr int64_t kMostForced = 7;

  request::Sequence* sequence = nullptr;  // null: the batch slot is free
  int32_t batch_slot = 0;
  cache::CachedSequence cached;
  int64_t num_planned = 0;  // tokens that planned steps compute, those complete included
  int32_t steps_in_flight = 0;
  int32_t draws_in_flight = 0;  // steps in flight that draw
  int64_t drafts_in_flight = 0;
  bool forced_in_flight = false;      // drafts_in_flight are forced
  int64_t most_forced = kMostForced;  // limit for the next step
  speculative::DraftOdds::AcceptanceTrend acceptance_trend;
  bool made_in_flight = false;      // a step in flight makes drafts
  speculative::Drafts made_drafts;  // by the runner, behind all tokens of the sequence
  Leaving leaving = Leaving::kNo;

  // The part of the batch slot that earlier plans have sent to the runner:
  bool sent = false;                                         // SlotStart
  std::array<int64_t, ops::kMaxPageTables> sent_pages = {};  // by page table, from the first on

  // Set by the caller of start().
  double admitted_seconds = 0;
  int32_t tenant = 0;
  int64_t urgency = 0;                 // base
  bool returns_without_cache = false;  // the prefix it shares with the cache takes the pages that
                                       // it needs: it starts again without the cache

  // It runs and takes part in the next plan.
  [[nodiscard]] bool stays() const { return sequence != nullptr && leaving == Leaving::kNo; }

  [[nodiscard]] bool is_released() const {
    return leaving == Leaving::kDone || leaving == Leaving::kAborted;
  }

  [[nodiscard]] bool is_removable() const {
    return leaving != Leaving::kNo && steps_in_flight == 0;
  }

  // The prompt is computed and another token is wanted: exactly one token, drawn or being drawn, is
  // not planned yet.
  [[nodiscard]] bool can_decode() const {
    const int64_t drawn = sequence->num_output_tokens() + draws_in_flight;
    // The constraint says which tokens may follow only once the last one is known.
    if (sequence->constraint != nullptr && draws_in_flight > 0) return false;
    return leaving == Leaving::kNo && !cached.starts && drawn > 0 &&
           drawn < sequence->request.stop.max_new_tokens &&
           sequence->num_tokens() + draws_in_flight - num_planned == 1;
  }

  // Some tokens of the prompt are not planned yet.
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

  // In the order of their start.
  [[nodiscard]] const std::vector<RunningSequence*>& sequences() const { return running_; }

  // The sequence in a batch slot that is taken (checked).
  [[nodiscard]] RunningSequence& in_slot(int32_t batch_slot);

  [[nodiscard]] bool any_can_decode() const;
  [[nodiscard]] bool any_can_prefill() const;
  [[nodiscard]] bool any_leaving() const;

  // The work of a step of all sequences that can decode.
  [[nodiscard]] StepWork decode_work() const;

  // Gives the sequence a batch slot and everything else it needs to run (PrefixCache::admit()), or
  // nothing: null. There is a free slot. With `without_cache` it shares nothing until its end.
  [[nodiscard]] RunningSequence* start(request::Sequence& sequence, const cache::PrefixMatch& match,
                                       int64_t headroom, bool without_cache);

  // Allocates the next token of a stream and `num_drafts` drafts; false: no room, nothing changed.
  [[nodiscard]] bool grow(const RunningSequence& running, int64_t num_drafts = 0);

  // The same for tables with a window. False: it skips steps until its prompt's last step is
  // confirmed.
  [[nodiscard]] bool grow_windows(RunningSequence& running, int64_t num_drafts = 0);

  // Frees pages before the sliding windows. Returns whether there were any.
  [[nodiscard]] bool shrink_windows();

  // How many drafts the runner makes after the prompts of steps planned from now on, and whether
  // these go through the draft network.
  void want_behind_prompts(int64_t num_drafts, bool network_follows) {
    wanted_behind_prompts_ = num_drafts;
    network_follows_prompts_ = network_follows;
  }

  // Adds the next token of a stream, or the next tokens of a prompt, to the plan. Drafts follow a
  // token that the host knows (checked); `num_wanted` drafts are to follow its draw. Returns the
  // number of drafts in the plan: a constrained stream has those that its grammar allows.
  int64_t plan_decode(RunningSequence& running, const PlannedDrafts& drafts, int64_t num_wanted,
                      request::BatchPlan& plan);
  void plan_prefill(RunningSequence& running, int64_t num_new_tokens, request::BatchPlan& plan);

  // A step that computed the sequence's tokens ended; `drawn` is empty where the plan draws none,
  // `made` where no drafts were made. Publishes what was computed. Returns how many tokens were
  // appended.
  [[nodiscard]] int64_t complete(const request::PlannedSequence& planned,
                                 std::span<const request::SampledToken> drawn,
                                 std::span<const request::MadeDraft> made = {});

  // For a failed step: its tokens were not computed, and the runner may have dropped the plan's
  // data about the batch slot.
  void abandon(const request::PlannedSequence& planned);

  // Frees the pages, slots and locks of the sequence, which is removable (checked).
  void remove(RunningSequence& running);

  // Prompt tokens computed since the start of the engine.
  [[nodiscard]] int64_t prefilled_tokens() const { return prefilled_tokens_; }

  // The running sequences with their part of the cache, for PrefixCache::check_invariants().
  [[nodiscard]] std::vector<cache::AdmittedSequence> admitted() const;

  // Proves that slots, lengths and states agree with each other, or aborts.
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
  std::vector<RunningSequence> slots_;     // by batch slot
  std::vector<int32_t> free_slots_;        // the next one to take is the last
  std::vector<RunningSequence*> running_;  // in the order of their start
  int64_t prefilled_tokens_ = 0;
  int64_t wanted_behind_prompts_ = 0;
  bool network_follows_prompts_ = false;
  speculative::Drafts allowed_;  // scratch of add_masks()
  std::vector<int32_t> allowed_path_, kept_;
};

}  // namespace heddle::scheduler
