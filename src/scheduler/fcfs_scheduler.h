// SPDX-License-Identifier: Apache-2.0
// FcfsScheduler: first come, first served, with chunked prefill and mixed batches.
//
// A step, in this order:
//   1. Every decoding sequence gets a page for its next row if it needs one. When none is left the
//      youngest running sequence is retracted, until there is one. The oldest is never retracted:
//      it fits the pool alone, so it always reaches its end.
//   2. Decoding sequences: one token each, all of them.
//   3. Running sequences in prefill, oldest first, share what is left of the step's tokens.
//   4. Waiting sequences, oldest first, as long as there are tokens, rows, a state slot and pages
//   for
//      all of their tokens and one more for every running sequence. The first that does not fit
//      stops the pass: nobody overtakes. After a retraction nobody is admitted before somebody
//      left, so that work is not thrown away twice.
//
// Chunks that are not a prompt's last end on the grid. A chunk that would be empty then is left for
// the next step, unless it is the step's first: progress goes before alignment.
//
// Invariants beyond Scheduler's: running and waiting are ordered by age, and every running sequence
// is older than every waiting one. Cost: O(sequences) a step; allocates nothing once the vectors
// have grown.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/page_allocator.h"
#include "cache/state_allocator.h"
#include "scheduler/scheduler.h"

namespace heddle::scheduler {

class FcfsScheduler final : public Scheduler {
 public:
  // Limits that contradict each other are lowered: max_running to the state slots and to
  // max_step_tokens, so that every running sequence can advance in every step.
  // At least one page, one step token and, if needed, one slot (checked).
  explicit FcfsScheduler(const SchedulerOptions& options);

  [[nodiscard]] Status check_fits(const request::Sequence& sequence) const override;
  Status submit(request::Sequence& sequence) override;
  void plan(request::BatchPlan& plan) override;
  void complete(const request::BatchPlan& plan, const request::StepOutput& output) override;
  void release(request::Sequence& sequence) override;
  [[nodiscard]] SchedulerStats stats() const override;
  void check_invariants() const override;

  [[nodiscard]] const SchedulerOptions& options() const { return options_; }

 private:
  void grow_decoding();
  void retract_youngest();
  [[nodiscard]] bool admit(request::Sequence& sequence);
  void release_resources(request::Sequence& sequence);
  [[nodiscard]] int64_t chunk_size(const request::Sequence& sequence, int64_t budget,
                                   bool first) const;
  static void add(request::Sequence& sequence, int64_t num_new_tokens, request::BatchPlan& plan);

  SchedulerOptions options_;
  cache::PageAllocator pages_;
  cache::StateAllocator states_;
  std::vector<request::Sequence*> running_;  // oldest first
  std::vector<request::Sequence*> waiting_;  // oldest first
  int64_t last_id_;
  int64_t num_queued_ = 0;
  int64_t num_retractions_ = 0;
  bool admission_paused_ = false;  // from a retraction to the next release
};

}  // namespace heddle::scheduler
