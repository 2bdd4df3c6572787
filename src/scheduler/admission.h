// SPDX-License-Identifier: Apache-2.0
// Admission: which prompts a step computes. Running prompts go on first, in the order of their
// start; then waiting sequences get a batch slot, in the order of the queue, as long as the step's
// budget (prefill_budget.h), its time (pace.h) and the pools have room. The first that does not fit
// ends the pass: no later one overtakes it
// but short prompts that choose_short_prompts() has chosen.
//
// After a retraction only sequences more urgent than the retracted one are admitted until a running
// one has finished, so that work is not thrown away twice.
//
// Liveness: when nothing runs, admit_first() starts the first waiting sequence whatever the
// estimates say. Should the pools be so small that the prefix it shares with the cache takes the
// pages it needs, it starts without the cache: then everything else can be evicted, and
// Scheduler::check_fits() has promised it room.
//
// A prompt whose tokens are scored needs a row of logits for each of them, of which a step has few
// (StepLimits::max_scored_rows): such prompts share them, in shorter chunks where they are used up.
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
  PrefillLimits limits;           // chunk_tokens: of prompts, without the streams of the step
  int64_t max_step_tokens = 512;  // prompts and streams together
  double conservativeness = 1;
  int64_t max_scored_rows = 0;
  bool needs_state = false;
  bool by_priority = false;
  bool preemption = false;  // with by_priority: a more urgent sequence may be admitted later by
                            // preemption although no batch slot is free
  bool short_prompts_pass = false;  // choose_short_prompts() may choose some
};

class Admission {
 public:
  // They outlive the object.
  struct Parts {
    cache::PrefixCache& cache;
    FairShare& fair;
    WaitingQueue& waiting;
    RunningSet& running;
    InFlightSharing& sharing;
    StepPace& pace;
  };

  Admission(const AdmissionOptions& options, const Parts& parts);

  // Whether a waiting sequence could be admitted at all. If not, a step in which all sequences
  // decode needs no order of the queue.
  [[nodiscard]] bool open() const;

  // The budget of a step with `num_decoding` streams.
  [[nodiscard]] PrefillBudget budget(int64_t num_decoding) const;

  // Chooses waiting prompts that need not wait for long ones: prompts with so few tokens to compute
  // that all chosen ones fit in a quarter of the step. continue_prefills() and admit_waiting() keep
  // these tokens for them, so that long prompts lose at most a quarter of their pace. The search
  // ends at a waiting prompt that memory, states or batch slots may not suffice for: no prompt
  // behind it takes them first. The queue was ordered in this pass. Cost: kMostPassed matches.
  void choose_short_prompts(const PrefillBudget& budget);

  // Adds the next chunk of every running prompt to the plan.
  void continue_prefills(PrefillBudget& budget, request::BatchPlan& plan);

  // The waiting sequence that ended the pass, with its match. Valid until the queue changes.
  struct Blocked {
    const WaitingSequence& waiting;
    cache::PrefixMatch match;
  };

  // Starts waiting sequences and adds their first chunks to the plan. The queue was ordered in this
  // pass. Returns the one that found no batch slot, state or memory, if preemption may help it.
  std::optional<Blocked> admit_waiting(PrefillBudget& budget, request::BatchPlan& plan,
                                       double now_seconds);

  // The amounts that the sequence lacks.
  [[nodiscard]] PreemptionNeed need_of(const Blocked& blocked, const PrefillBudget& budget) const;

  // Nothing runs: orders the queue and starts the first sequence, if there is one.
  void admit_first(request::BatchPlan& plan, double now_seconds);

  // All streams advanced without a retraction.
  void streams_advanced() { ratio_.decay(); }

  // `victim`, still one of the running, is being retracted.
  void retracting(const RunningSequence& victim);

  // A running sequence was released.
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

  static constexpr int64_t kShortPart = 4;   // short prompts get at most this part of a step: 1 / 4
  static constexpr size_t kMostPassed = 16;  // waiting prompts that a pass examines

  AdmissionOptions options_;
  Parts parts_;
  NewTokenRatio ratio_;
  bool paused_ = false;         // from a retraction until a running sequence has finished
  int64_t paused_urgency_ = 0;  // urgency of the retracted sequence: more urgent ones need not wait

  struct ShortPrompt {
    const request::Sequence* sequence;
    int64_t tokens;
  };

  std::vector<ShortPrompt> short_;  // chosen in this pass, and not reached yet by admit_waiting()
  int64_t short_tokens_ = 0;        // the sum of their tokens
};

}  // namespace heddle::scheduler
