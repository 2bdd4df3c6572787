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
// The engine's loop around it: submit() and release() as requests come and go; plan(), then submit
// the step to the runner, and complete() at once or after one more step was planned. A plan made
// while a step is in flight feeds tokens that the host has not seen yet
// (PlannedSequence::feeds_drawn_token).
//
// Ownership: the engine owns the sequences and keeps them alive from submit() until release() or a
// later complete() has made them SequenceStatus::kFinished. In between only the scheduler writes
// the scheduler's fields of a Sequence. The pages and slots of a sequence are released when no step
// in flight uses them.
// Threading:  confined to the engine thread, except check_fits() and check_call(), which are
//             thread-safe.
// Invariants: a sequence is in exactly one list; a waiting sequence owns no pages or slots; pages
//             and slots are allocated together or not at all; every accepted sequence is run to its
//             end, released, or reported by take_dropped().
//             released, or reported by take_dropped().
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
  int64_t num_waiting = 0;            // waiting sequences, retracted ones included
  int64_t num_queued = 0;             // waiting sequences that never ran; limited by max_queued
  int64_t waiting_tokens = 0;         // tokens of waiting sequences, not counting those known to be
                                      // cached
  double oldest_wait_seconds = 0;     // how long the oldest sequence of num_queued has waited; 0:
                                      // none is queued
  int64_t num_deferred_arrivals = 0;  // waiting sequences that defer_arrivals() holds back
  int64_t num_running = 0;            // sequences that have a batch slot
  // Batch slots that arriving sequences get in the next step; 0 while a waiting sequence lacks a
  // slot, memory or tokens, in a pause, or while arrivals are deferred.
  int64_t num_open_slots = 0;
  int64_t num_retractions = 0;  // this and the next five fields count from the start of the engine
  int64_t retracted_input_tokens = 0;   // prompt tokens that retracted sequences had computed
  int64_t retracted_output_tokens = 0;  // output tokens that retracted sequences had computed
  int64_t num_preemptions = 0;
  int64_t preempted_tokens = 0;    // prompt and output tokens that preempted sequences had computed
  int64_t deferred_sequences = 0;  // waiting sequences that were held back for a running one that
                                   // computes the same prefix
  double new_token_ratio = 0;
  double prefill_tokens_per_second = 0;  // measured speed of prefill steps; ServiceRates
  int64_t kv_tokens_used = 0;            // KV entries of running sequences, counted in whole pages
  cache::PrefixCacheStats cache;
};

// A sequence that the scheduler gives up before its end, and the reason.
struct Dropped {
  request::Sequence* sequence = nullptr;
  Status reason;
};

enum class Ending {
  kDone,     // the sequence's computed tokens stay in the cache
  kAborted,  // the cache keeps only what was published before
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Whether the sequence could run if nothing else ran. Error: kInvalidArgument; the message names
  // the tokens it needs and the tokens there are.
  [[nodiscard]] virtual Status check_fits(const request::Sequence& sequence) const = 0;

  // Whether the sequences of one call could be queued together if nothing else ran or waited. Does
  // not look at memory: check_fits() does that for each sequence. Thread-safe. Error:
  // kInvalidArgument; the message names their number and the largest allowed number.
  [[nodiscard]] virtual Status check_call(
      std::span<const request::Sequence* const> sequences) const = 0;

  // Queues the sequences of one call, all or none. Each has passed check_fits(), which is not
  // called again; ids ascend in order of submission (checked). Errors, nothing is queued:
  // kInvalidArgument for a priority while priorities are off; kResourceExhausted when the queue is
  // full and holds no less urgent request, or when a tenant has reached its limit of queued
  // requests.
  virtual Status submit_all(std::span<request::Sequence* const> sequences) = 0;

  // submit_all() for a call of one sequence.
  Status submit(request::Sequence& sequence) {
    request::Sequence* const alone = &sequence;
    return submit_all({&alone, 1});
  }

  // Decides the next step: replaces `plan`, which must stay unchanged until complete(). At most one
  // other step is in flight. The plan is empty when nothing can run. With no step in flight that
  // happens only if no sequence runs and every waiting one is deferred.
  virtual void plan(request::BatchPlan& plan) = 0;

  // Does the work that plan() postponed. Called while a step is in flight.
  virtual void catch_up() {}

  // Whether the next step should be planned only after the step in flight has ended: planned now,
  // it would yield fewer tokens, because drafts can only follow a text that is known completely.
  [[nodiscard]] virtual bool awaits_draws() { return false; }

  // Applies the results of the oldest step in flight: advances the computed lengths, appends drawn
  // tokens, publishes states. Sequences released meanwhile are skipped; a token with an error is
  // not appended. `output` must match the plan (checked).
  virtual void complete(const request::BatchPlan& plan, const request::StepOutput& output) = 0;

  // Called when the oldest step in flight failed: its tokens were not computed.
  virtual void abandon(const request::BatchPlan& plan) = 0;

  // Ends a waiting or running sequence. Its status becomes kFinished, or kEnding while a step in
  // flight still uses its pages. Calling it twice is harmless.
  virtual void release(request::Sequence& sequence, Ending ending) = 0;

  // Appends the sequences that timed out and those that a more urgent request displaced from the
  // full queue. The caller releases each of them.
  virtual void take_dropped(std::vector<Dropped>& dropped) = 0;

  // Sends every running sequence back to the queue and frees its pages and slots. No step is in
  // flight (checked).
  virtual void retract_all() = 0;

  // While paused, no step is planned and new sequences wait.
  virtual void set_paused(bool paused) = 0;

  // While true, new sequences wait and are not started; earlier ones run as usual. Limits of the
  // queue and of time apply to both.
  virtual void defer_arrivals(bool defer) = 0;

  // Drops all cached tokens that no sequence uses.
  virtual void clear_cache() = 0;

  [[nodiscard]] virtual SchedulerStats stats() const = 0;

  // The prefix cache, for display (cache/cache_view.h); null if the scheduler has none.
  [[nodiscard]] virtual const cache::PrefixCache* prefix_cache() const { return nullptr; }

  // Checks the invariants and aborts if one is broken. For tests and idle time.
  virtual void check_invariants() const = 0;
};

}  // namespace heddle::scheduler
