// SPDX-License-Identifier: Apache-2.0
// Scheduler: who runs in the next step, and who owns which pages and state slots.
//
// The life of a sequence:
//
//   submit() -> waiting -> running: prefilled in chunks, then one token a step -> release()
//                  ^          |
//                  +----------+  retracted when the pages run out: loses pages and state, keeps its
//                                tokens (also those already drawn) and computes them again later
//
// The engine's loop around it: submit() and release() as requests come and go, then plan(), run the
// step, complete(). plan() may run before complete() of the previous step only in implementations
// that say so.
//
// Ownership: the engine owns the sequences and keeps them alive from submit() to release(). The
// scheduler owns their bookkeeping fields in between.
// Threading:  confined to the engine thread, except check_fits(), which is thread-safe.
// Invariants: a sequence is in exactly one list; waiting ones own nothing; pages and slots are
// taken
//             together or not at all; every step gives each decoding sequence its token, so that
//             running streams always advance; every accepted sequence is run to its end or
//             released.
#pragma once

#include <cstdint>

#include <heddle/status.h>

#include "request/batch_plan.h"
#include "request/sequence.h"
#include "request/step_output.h"

namespace heddle::scheduler {

// What a scheduler may hand out and how much of it in one step.
struct SchedulerOptions {
  int64_t num_pages = 0;
  int32_t page_size = 16;
  int64_t num_state_slots = 0;  // 0: models without recurrent state
  bool needs_state = false;     // every running sequence holds one slot

  int32_t max_running = 64;              // sequences in one step
  int64_t max_step_tokens = 512;         // new tokens of one step, prefill and decode together
  int64_t chunked_prefill_tokens = 512;  // prefill tokens of one step
  int32_t max_queued = 1024;             // waiting sequences that never ran

  // Chunks that are not a prompt's last end on multiples of it: the delta rule works on chunks of
  // 64, and states are kept at multiples of 64.
  int64_t chunk_grid = 64;
};

struct SchedulerStats {
  int64_t num_waiting = 0;  // retracted ones included
  int64_t num_queued = 0;   // waiting and never ran: what max_queued bounds
  int64_t num_running = 0;
  int64_t pages_used = 0;
  int64_t state_slots_used = 0;
  int64_t num_retractions = 0;  // since the start
};

class Scheduler {
 public:
  virtual ~Scheduler() = default;

  // Whether the sequence could run if it had the machine for itself. Error: kInvalidArgument, with
  // the tokens it needs and the tokens there are.
  [[nodiscard]] virtual Status check_fits(const request::Sequence& sequence) const = 0;

  // Queues a sequence. Ids ascend in order of submission (checked).
  // Errors, nothing is queued: as check_fits(); kResourceExhausted when max_queued are waiting.
  virtual Status submit(request::Sequence& sequence) = 0;

  // Decides the next step: replaces `plan`. It stays empty when nothing can run, which is only when
  // nothing is running or waiting. The plan's views live until complete() or a release() of theirs.
  virtual void plan(request::BatchPlan& plan) = 0;

  // Books what a step computed: counts forward, appends drawn tokens. Sequences released meanwhile
  // are passed over; a token with an error is not appended. `output` fits the plan (checked).
  virtual void complete(const request::BatchPlan& plan, const request::StepOutput& output) = 0;

  // Ends a sequence wherever it is and frees what it owns. The only way out; doing it twice is
  // harmless.
  virtual void release(request::Sequence& sequence) = 0;

  [[nodiscard]] virtual SchedulerStats stats() const = 0;

  // Proves the invariants or aborts. For tests and idle time.
  virtual void check_invariants() const = 0;
};

}  // namespace heddle::scheduler
