// SPDX-License-Identifier: Apache-2.0
// Scheduler: who runs in the next step, and who owns which pages and state slots.
//
// The life of a sequence:
//
//   submit() -> waiting -> running: prefilled in chunks, then one token a step -> release()
//                  ^          |
//                  +----------+  retracted when the pages run out, or preempted by somebody more
//                                urgent: keeps its tokens and goes on where the cache left off
//
// The engine's loop around it: submit() and release() as requests come and go; plan(), submit the
// step, and, at once or after planning one step more, complete(). A plan made while a step is in
// flight feeds tokens that nobody has seen yet (PlannedSequence::feeds_drawn_token).
//
// Ownership: the engine owns the sequences and keeps them alive from submit() until release() or a
// later complete() has made them SequenceStatus::kFinished. The scheduler owns their bookkeeping
// fields in between. What a sequence holds is given back when no step in flight uses it.
// Threading:  confined to the engine thread, except check_fits() and check_call(), which are
//             thread-safe.
// Invariants: a sequence is in exactly one list; waiting ones own nothing; pages and slots are
// taken together or not at all; every accepted sequence is run to its end, released, or reported by
// take_dropped().
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <heddle/status.h>

#include "cache/prefix_cache.h"
#include "request/batch_plan.h"
#include "request/sequence.h"
#include "request/step_output.h"

namespace heddle::scheduler {

struct SchedulerStats {
  int64_t num_waiting = 0;         // returned ones included
  int64_t num_queued = 0;          // waiting and never ran: what max_queued bounds
  double oldest_wait_seconds = 0;  // how long ago the oldest of these came; 0: nobody
  int64_t num_running = 0;
  int64_t num_places = 0;       // rows for arrivals that need not wait: none while somebody waits
                                // for room, or in a pause
  int64_t num_retractions = 0;  // since the start, as all below
  int64_t num_preemptions = 0;
  int64_t retracted_tokens = 0;    // computed once and given up
  int64_t deferred_sequences = 0;  // waited for another one with the same prefix
  double new_token_ratio = 0;
  int64_t kv_tokens_used = 0;  // by running sequences, in whole pages
  cache::PrefixCacheStats cache;
};

// A sequence that is not run to its end.
struct Dropped {
  request::Sequence* sequence = nullptr;
  Status reason;
};

enum class Ending {
  kDone,     // its tokens stay in the cache, to the last that was computed
  kAborted,  // nothing new stays
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Whether the sequence could run if it had the machine for itself. Error: kInvalidArgument, with
  // the tokens it needs and the tokens there are.
  [[nodiscard]] virtual Status check_fits(const request::Sequence& sequence) const = 0;

  // Whether the sequences of one call could be queued together if nothing else ran or waited; none
  // of them says anything about room in the pools, which check_fits() does for each. Thread-safe.
  // Error: kInvalidArgument, with their number and the most there can be.
  [[nodiscard]] virtual Status check_call(
      std::span<const request::Sequence* const> sequences) const = 0;

  // Queues the sequences of one call, all or none. Ids ascend in order of submission (checked).
  // Errors, nothing is queued: as check_fits(); kResourceExhausted when the queue is full and
  // nobody in it is less urgent, or when a tenant has its share of it.
  virtual Status submit_all(std::span<request::Sequence* const> sequences) = 0;

  // A call of one.
  Status submit(request::Sequence& sequence) {
    request::Sequence* const alone = &sequence;
    return submit_all({&alone, 1});
  }

  // Decides the next step: replaces `plan`, which stays as it is until complete(). At most one
  // other step is in flight. Empty when nothing can run; with no step in flight that is only when
  // nothing is running or waiting.
  virtual void plan(request::BatchPlan& plan) = 0;

  // Books what the oldest step in flight computed: counts forward, appends drawn tokens, publishes
  // states. Sequences released meanwhile are passed over; a token with an error is not appended.
  // `output` fits the plan (checked).
  virtual void complete(const request::BatchPlan& plan, const request::StepOutput& output) = 0;

  // Books that the oldest step in flight failed: what it would have computed does not exist.
  virtual void abandon(const request::BatchPlan& plan) = 0;

  // Ends a sequence wherever it is. Its status becomes kFinished, or kEnding while a step in flight
  // still uses what it holds. Doing it twice is harmless.
  virtual void release(request::Sequence& sequence, Ending ending) = 0;

  // Appends the sequences whose time is up or whose place somebody more urgent took; each is to be
  // released.
  virtual void take_dropped(std::vector<Dropped>& dropped) = 0;

  // Sends everything that runs back to the queue, where it owns nothing. No step is in flight
  // (checked).
  virtual void retract_all() = 0;

  // In a pause no plan is asked for, and whoever arrives waits.
  virtual void set_paused(bool paused) = 0;

  // Gives up every cached token that nobody uses.
  virtual void clear_cache() = 0;

  [[nodiscard]] virtual SchedulerStats stats() const = 0;

  // Proves the invariants or aborts. For tests and idle time.
  virtual void check_invariants() const = 0;
};

}  // namespace heddle::scheduler
