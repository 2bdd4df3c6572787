// SPDX-License-Identifier: Apache-2.0
// Admission: decides which prompts a step computes. Running prompts continue first, in the order of
// their start. Then waiting sequences get a batch slot, in the order of the queue, while the step's
// budget (prefill_budget.h), its time (pace.h) and the pools have room. The first that does not fit
// ends the pass; only short prompts that choose_short_prompts() has chosen may overtake it.
//
// After a retraction only sequences more urgent than the retracted one are admitted until a running
// one has finished. Otherwise the admitted sequence would soon be retracted too.
//
// Liveness: when nothing runs, admit_first() starts the first waiting sequence whatever the
// estimates say. If the pools are so small that the prefix it shares with the cache occupies pages
// it needs, it starts without the cache. Then everything else can be evicted, and
// Scheduler::check_fits() has checked that it fits alone.
//
// A prompt whose tokens are scored needs a row of logits for each of them, and a step has few such
// rows (StepLimits::max_scored_rows). The prompts of a step share them: when they run out, a chunk
// is cut.
//
// Threading: confined to the engine thread. Cost: O(running + admitted + 16) and a match each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "cache/prefix_cache.h"
#include "request/batch_plan.h"
#include "scheduler/fair_share.h"
#include "scheduler/in_flight_sharing.h"
#include "scheduler/pace.h"
#include "scheduler/preemption.h"
#include "scheduler/prefill_budget.h"
#include "scheduler/running_set.h"
#include "scheduler/waiting_queue.h"

namespace heddle::scheduler {

struct AdmissionOptions {
  PrefillLimits limits;             // chunk_tokens limits the prompt tokens of a step, not counting
                                    // its streams
  int64_t max_step_tokens = 512;    // most tokens of a step, prompts and streams together
  double conservativeness = 1;      // initial new-token ratio, relative to 0.7 (NewTokenRatio)
  int64_t max_scored_rows = 0;      // most rows of a step that score prompt tokens
  bool needs_state = false;         // sequences need a state slot
  bool by_priority = false;         // urgency comes before the policy's own order
  bool preemption = false;          // with by_priority: a more urgent sequence may be admitted by
                                    // preemption even if no batch slot is free
  bool short_prompts_pass = false;  // choose_short_prompts() may let short prompts overtake long
                                    // ones
};

class Admission {
 public:
  // References to the scheduler's other parts, which outlive Admission.
  struct Parts {
    cache::PrefixCache& cache;
    FairShare& fair;
    WaitingQueue& waiting;
    RunningSet& running;
    InFlightSharing& sharing;
    StepPace& pace;
  };

  Admission(const AdmissionOptions& options, const Parts& parts);

  // Whether any waiting sequence could be admitted. If not, a step in which all sequences decode
  // need not order the queue.
  [[nodiscard]] bool open() const;

  // The budget of a step in which `num_decoding` streams decode.
  [[nodiscard]] PrefillBudget budget(int64_t num_decoding) const;

  // Chooses waiting prompts that need not wait for long ones: prompts with so few tokens to compute
  // that all chosen ones fit in a quarter of the step. continue_prefills() and admit_waiting()
  // reserve that quarter for them, so that long prompts lose at most a quarter of their speed. The
  // search ends at the first waiting prompt that may lack memory, a state or a batch slot, so that
  // no later prompt takes them first. The queue must be ordered in this pass. Cost: kMostPassed
  // matches.
  void choose_short_prompts(const PrefillBudget& budget);

  // Adds the next chunk of every running prompt to the plan.
  void continue_prefills(PrefillBudget& budget, request::BatchPlan& plan);

  // The waiting sequence that ended the pass, with its cache match. Valid until the queue changes.
  struct Blocked {
    const WaitingSequence& waiting;
    cache::PrefixMatch match;
  };

  // Starts waiting sequences and adds their first chunks to the plan. The queue must be ordered in
  // this pass. Returns the sequence that lacked a batch slot, state or memory, if preemption may
  // help it.
  std::optional<Blocked> admit_waiting(PrefillBudget& budget, request::BatchPlan& plan,
                                       double now_seconds);

  // The tokens, batch slots and state slots that the blocked sequence lacks.
  [[nodiscard]] PreemptionNeed need_of(const Blocked& blocked, const PrefillBudget& budget) const;

  // Called when nothing runs: orders the queue and starts the first sequence, if there is one.
  void admit_first(request::BatchPlan& plan, double now_seconds);

  // Called after a step in which all streams advanced without a retraction.
  void streams_advanced() { ratio_.decay(); }

  // Called before `victim`, which still runs, is retracted.
  void retracting(const RunningSequence& victim);

  // Called when a running sequence was released.
  void sequence_left() { paused_ = false; }

  // Called when the last running sequence has left.
  void idle();

  [[nodiscard]] double new_token_ratio() const { return ratio_.value(); }

 private:
  [[nodiscard]] PrefillDemand demand(const request::Sequence& sequence,
                                     const cache::PrefixMatch& match) const;
  [[nodiscard]] bool lacks_state() const;
  [[nodiscard]] bool lacks_scored_rows(const request::Sequence& sequence,
                                       const cache::PrefixMatch& match,
                                       const PrefillBudget& budget) const;
  [[nodiscard]] cache::PrefixMatch match_of(const WaitingSequence& waiting) const;
  PrefillVerdict admit(const WaitingSequence& waiting, const cache::PrefixMatch& match,
                       PrefillBudget& budget, request::BatchPlan& plan, double now_seconds);
  RunningSequence* start(const WaitingSequence& waiting, const cache::PrefixMatch& match,
                         int64_t headroom, double now_seconds);
  void plan_prefill(RunningSequence& running, int64_t num_tokens, PrefillBudget& budget,
                    request::BatchPlan& plan);
  [[nodiscard]] bool take_short(const request::Sequence& sequence);
  [[nodiscard]] int64_t most_tokens(const PrefillBudget& budget, int64_t context_tokens) const;

  static constexpr int64_t kShortPart = 4;   // short prompts get at most 1 / kShortPart of a step
  static constexpr size_t kMostPassed = 16;  // most waiting prompts that choose_short_prompts()
                                             // examines

  AdmissionOptions options_;
  Parts parts_;
  NewTokenRatio ratio_;
  bool paused_ = false;         // only more urgent sequences are admitted: from a retraction until
                                // a running sequence finishes
  int64_t paused_urgency_ = 0;  // urgency of the retracted sequence; sequences above it are still
                                // admitted

  struct ShortPrompt {
    const request::Sequence* sequence;
    int64_t tokens;
  };

  std::vector<ShortPrompt> short_;  // chosen in this pass and not yet admitted
  int64_t short_tokens_ = 0;        // sum of the tokens of short_
};

}  // namespace heddle::scheduler
