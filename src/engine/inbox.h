// SPDX-License-Identifier: Apache-2.0
// Inbox: everything that other threads leave for the engine thread: requests, cancellations,
// pauses, calls to clear the cache, updates of weights and inspections. It also knows which
// requests are unfinished, refuses what exceeds the limits of the queue, and lets the engine thread
// sleep until there is mail.
//
//   other threads                          engine thread
//   submit() cancel() pause()         ->   wait() take()
//   clear_cache() inspect()
//   update_weights() wake()
//   drain() stop()                    <-   release_id() on_ended() show_queue() fail()
//
// Everything has a bound: arrivals by max_queued and the free batch slots, cancellations by the
// unfinished requests, pauses, clear calls and inspections by constants in inbox.cpp; there is one
// update of weights.
//
// Threading: thread-safe. The functions of the second part are the engine thread's only.
// Invariants: the ids of unfinished requests are unique; sequence ids ascend in order of submission
//             and the requests of one call follow each other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include <heddle/engine.h>

#include "core/clock.h"
#include "core/mutex.h"
#include "engine/live_request.h"

namespace heddle::engine {

using Arrivals = std::vector<std::unique_ptr<LiveRequest>>;

struct PauseCall {
  std::optional<PauseMode> mode;  // none: the pause ends
  std::function<void(Status)> on_done;
};

struct ClearCall {
  double deadline = 0;
  double timeout_seconds = 0;
  std::function<void(Status)> on_done;
};

struct UpdateCall {
  WeightUpdate update;
  std::function<void(Result<WeightsUpdated>)> on_done;
};

struct InspectionCall {
  InspectionOptions options;
  std::unique_ptr<request::Sequence> prompt;  // null: none is looked up
  std::function<void(Result<Inspection>)> on_done;
};

// The contents of the inbox, which the engine thread takes out.
struct Mail {
  Arrivals arrivals;
  std::vector<int64_t> cancelled;  // sequence ids, each at most once
  std::vector<PauseCall> pauses;
  std::vector<ClearCall> clears;
  std::optional<UpdateCall> update;
  std::vector<InspectionCall> inspections;
};

struct InboxLimits {
  int64_t max_queued = 0;       // requests that wait for a batch slot
  int64_t num_batch_slots = 0;  // requests that run at once
  bool by_priority = false;     // the scheduler decides which requests wait: an urgent arrival may
                                // displace another one, so only arrivals are limited here
};

class Inbox {
 public:
  // `clock` outlives the inbox. `random_seed` starts the seeds of requests that have none.
  Inbox(const Clock& clock, const InboxLimits& limits, uint64_t random_seed);

  // ---- Any thread ----

  // Takes the requests of one call, all or none; gives each its sequence id, seed and time.
  // Errors: kInvalidArgument for an id that is in use; kResourceExhausted when the queue is full;
  // kUnavailable after stop(), begin_drain() or fail().
  Status submit(Arrivals arrivals) HEDDLE_EXCLUDES(mutex_);

  // An unknown or finished id is ignored.
  void cancel(const std::string& request_id) HEDDLE_EXCLUDES(mutex_);

  // Calls on_done immediately if the call is refused: with kResourceExhausted when too many wait
  // already, with kUnavailable after stop(), begin_drain() or fail().
  void pause(PauseCall call) HEDDLE_EXCLUDES(mutex_);
  void clear_cache(ClearCall call) HEDDLE_EXCLUDES(mutex_);
  void update_weights(UpdateCall call) HEDDLE_EXCLUDES(mutex_);
  void inspect(InspectionCall call) HEDDLE_EXCLUDES(mutex_);

  // Makes the engine thread do a round although no mail has arrived.
  void wake() HEDDLE_EXCLUDES(mutex_);

  // Refuses requests from now on and ends a pause.
  void begin_drain() HEDDLE_EXCLUDES(mutex_);

  // Waits until every request has ended, at most for the timeout; then has the engine thread abort
  // the rest. Returns how many it aborted.
  int64_t finish_drain(double timeout_seconds) HEDDLE_EXCLUDES(mutex_);

  // Refuses everything from now on; wait() then reports that the inbox has stopped.
  void stop() HEDDLE_EXCLUDES(mutex_);

  struct Load {
    int64_t num_arrivals = 0;    // not taken yet
    int64_t num_unfinished = 0;  // accepted, final event not delivered
    double busy_since = 0;       // when the first of these arrived
  };

  [[nodiscard]] Load load() const HEDDLE_EXCLUDES(mutex_);

  // OK, or the reason of fail().
  [[nodiscard]] Status failure() const HEDDLE_EXCLUDES(mutex_);

  // OK, or why submit() refuses everything.
  [[nodiscard]] Status closed() const HEDDLE_EXCLUDES(mutex_);

  // A line per unfinished request, oldest first, at most some thirty; for the log.
  [[nodiscard]] std::string describe() const HEDDLE_EXCLUDES(mutex_);

  // ---- The engine thread ----

  enum class Sleep {
    kNone,   // work is waiting
    kShort,  // sleeps until mail arrives or some milliseconds have passed
    kLong,   // sleeps until mail arrives
  };

  struct Orders {
    bool stop = false;
    bool abort_all = false;  // a drain ran out of time; said once
  };

  Orders wait(Sleep sleep) HEDDLE_EXCLUDES(mutex_);

  // Moves new messages to `mail`. New arrivals and cancellations stay in the inbox while the mail
  // still has some, left by an interrupted round.
  void take(Mail& mail) HEDDLE_EXCLUDES(mutex_);

  // Frees a request's id for reuse. Called before the request's final event.
  void release_id(const std::string& request_id) HEDDLE_EXCLUDES(mutex_);

  // Records that `count` requests have had their final event, `num_aborted_by_drain` of them
  // because a drain ran out of time.
  void on_ended(int64_t count, int64_t num_aborted_by_drain) HEDDLE_EXCLUDES(mutex_);

  // Records that `count` of the clear calls that were taken are answered.
  void on_clears_answered(int64_t count) HEDDLE_EXCLUDES(mutex_);

  // The update of weights that was taken is answered.
  void on_update_answered() HEDDLE_EXCLUDES(mutex_);

  // The figures by which submit() limits the queue: requests that wait with the scheduler, and
  // batch slots for arrivals that need not wait. All arrivals that were taken are with the
  // scheduler.
  void show_queue(int64_t num_queued, int64_t num_free_slots) HEDDLE_EXCLUDES(mutex_);

  // The engine has failed and refuses everything. The first reason stays.
  void fail(const Status& reason) HEDDLE_EXCLUDES(mutex_);

 private:
  // An unfinished request: what cancel() and describe() need.
  struct OpenRequest {
    int64_t sequence_id = 0;
    int64_t prompt_tokens = 0;
    int64_t max_new_tokens = 0;
    double submit_seconds = 0;
    bool cancelled = false;
  };

  [[nodiscard]] Status refusal() const HEDDLE_REQUIRES(mutex_);
  [[nodiscard]] bool has_mail() const HEDDLE_REQUIRES(mutex_);
  [[nodiscard]] Status check_room(int64_t num_arrivals) const HEDDLE_REQUIRES(mutex_);
  Status claim_ids(const Arrivals& arrivals, double now) HEDDLE_REQUIRES(mutex_);

  const Clock& clock_;
  const InboxLimits limits_;

  mutable Mutex mutex_;
  CondVar mail_came_;    // the engine thread waits here
  CondVar became_idle_;  // finish_drain() waits here
  Mail mail_ HEDDLE_GUARDED_BY(mutex_);
  // Keyed by request id.
  std::unordered_map<std::string, OpenRequest> open_ HEDDLE_GUARDED_BY(mutex_);
  int64_t num_unfinished_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t num_open_clears_ HEDDLE_GUARDED_BY(mutex_) = 0;  // taken or not, not answered
  // A weight update is not answered yet, whether taken or not.
  bool update_open_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool woken_ HEDDLE_GUARDED_BY(mutex_) = false;
  int64_t num_queued_ HEDDLE_GUARDED_BY(mutex_) = 0;  // taken, never ran
  int64_t num_free_slots_ HEDDLE_GUARDED_BY(mutex_);
  int64_t next_sequence_id_ HEDDLE_GUARDED_BY(mutex_) = 1;
  uint64_t seed_state_ HEDDLE_GUARDED_BY(mutex_);
  double busy_since_ HEDDLE_GUARDED_BY(mutex_) = 0;
  bool refusing_ HEDDLE_GUARDED_BY(mutex_) = false;  // draining or stopping
  bool abort_requested_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  int64_t num_aborted_by_drain_ HEDDLE_GUARDED_BY(mutex_) = 0;
  Status failure_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::engine
