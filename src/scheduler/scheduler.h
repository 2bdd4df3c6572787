// SPDX-License-Identifier: Apache-2.0
// Scheduler: decides which sequences run in the next step, and gives them pages and state slots.
//
// The life of a sequence:
//
//   submit() -> waiting -> running: prefilled in chunks, then one token a step -> release()
//                  ^          |
//                  +----------+  retracted when the pages run out, or preempted by a more urgent
//                                one: keeps its tokens and goes on where the cache left off
//
// The engine's loop around it: submit() and release() as requests come and go; plan(), submit the
// step, and, at once or after planning one step more, complete(). A plan made while a step is in
// flight feeds tokens that the host has not seen yet (PlannedSequence::feeds_drawn_token).
//
// Ownership: the engine owns the sequences and keeps them alive from submit() until release() or a
// later complete() has made them SequenceStatus::kFinished. In between the scheduler alone writes
// the fields of a Sequence that are its own. A sequence gives its pages and slots back when no step
// in flight uses them.
//
// Threading:  confined to the engine thread, except check_fits() and check_call(), which are
//             thread-safe.
// Invariants: a sequence is in exactly one list; waiting ones own nothing; pages and slots are
//             taken together or not at all; every accepted sequence is run to its end, released,
//             or reported by take_dropped().
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
  int64_t num_waiting = 0;            // including retracted ones
  int64_t num_queued = 0;             // waiting and never ran: limited by max_queued
  int64_t waiting_tokens = 0;         // tokens of waiting sequences that are not known to be cached
  double oldest_wait_seconds = 0;     // since the oldest of these arrived; 0: none
  int64_t num_deferred_arrivals = 0;  // waiting ones deferred by defer_arrivals()
  int64_t num_running = 0;
  int64_t num_open_slots = 0;   // batch slots that arriving sequences get in the next step: none
                                // while a waiting one is short of room, in a pause, or while
                                // arrivals are deferred
  int64_t num_retractions = 0;  // since the start, as all down to deferred_sequences
  int64_t retracted_input_tokens = 0;   // prompt tokens that retracted sequences had computed
  int64_t retracted_output_tokens = 0;  // and output tokens
  int64_t num_preemptions = 0;
  int64_t preempted_tokens = 0;    // prompt and output tokens that preempted sequences had computed
  int64_t deferred_sequences = 0;  // waited for another one with the same prefix
  double new_token_ratio = 0;
  double prefill_tokens_per_second = 0;  // ServiceRates
  int64_t kv_tokens_used = 0;            // by running sequences, in whole pages
  cache::PrefixCacheStats cache;
};

// A sequence that is not run to its end.
struct Dropped {
  request::Sequence* sequence = nullptr;
  Status reason;
};

enum class Ending {
  kDone,     // its computed tokens stay in the cache
  kAborted,  // nothing new stays
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Whether the sequence could run if it had the machine for itself. Error: kInvalidArgument, with
  // the tokens it needs and the tokens there are.
  [[nodiscard]] virtual Status check_fits(const request::Sequence& sequence) const = 0;

  // Whether the sequences of one call could be queued together if nothing else ran or waited. Room
  // in the pools is not looked at: check_fits() does that for each. Thread-safe.
  // Error: kInvalidArgument, with their number and the most there can be.
  [[nodiscard]] virtual Status check_call(
      std::span<const request::Sequence* const> sequences) const = 0;

  // Queues the sequences of one call, all or none. Each has passed check_fits(), which is not asked
  // again; ids ascend in order of submission (checked).
  // Errors, nothing is queued: kInvalidArgument for a priority where they are refused;
  // kResourceExhausted when the queue is full and none in it is less urgent, or when a tenant has
  // its share of it.
  virtual Status submit_all(std::span<request::Sequence* const> sequences) = 0;

  // A call of one.
  Status submit(request::Sequence& sequence) {
    request::Sequence* const alone = &sequence;
    return submit_all({&alone, 1});
  }

  // Decides the next step: replaces `plan`, which must stay unchanged until complete(). At most one
  // other step is in flight. The plan is empty when nothing can run; with no step in flight, only
  // when nothing runs, or waits without being deferred.
  virtual void plan(request::BatchPlan& plan) = 0;

  // Does what plan() put off; call it when a step is under way, that one or the one before.
  virtual void catch_up() {}

  // Whether a step planned now, while one is in flight, would yield fewer tokens than one planned
  // when that has ended: drafts continue a whole text.
  [[nodiscard]] virtual bool awaits_draws() { return false; }

  // Takes the results of the oldest step in flight: counts forward, appends drawn tokens, publishes
  // states. Sequences released meanwhile are passed over; a token with an error is not appended.
  // `output` fits the plan (checked).
  virtual void complete(const request::BatchPlan& plan, const request::StepOutput& output) = 0;

  // The oldest step in flight failed: its tokens were not computed.
  virtual void abandon(const request::BatchPlan& plan) = 0;

  // Ends a sequence wherever it is. Its status becomes kFinished, or kEnding while a step in flight
  // still uses its pages. Doing it twice is harmless.
  virtual void release(request::Sequence& sequence, Ending ending) = 0;

  // Appends the sequences whose time is up and those that a more urgent one displaced from the full
  // queue; each is to be released.
  virtual void take_dropped(std::vector<Dropped>& dropped) = 0;

  // Sends everything that runs back to the queue, where it owns nothing. No step is in flight
  // (checked).
  virtual void retract_all() = 0;

  // While paused no plan is made, and new sequences wait.
  virtual void set_paused(bool paused) = 0;

  // While true, new sequences wait and are not started; earlier ones run as usual. Limits on queue
  // and time apply to all.
  virtual void defer_arrivals(bool defer) = 0;

  // Drops every cached token that no sequence uses.
  virtual void clear_cache() = 0;

  [[nodiscard]] virtual SchedulerStats stats() const = 0;

  // For people to look at (cache/cache_view.h); null: it works without one.
  [[nodiscard]] virtual const cache::PrefixCache* prefix_cache() const { return nullptr; }

  // Proves the invariants or aborts. For tests and idle time.
  virtual void check_invariants() const = 0;
};

}  // namespace heddle::scheduler
