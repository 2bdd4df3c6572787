// SPDX-License-Identifier: Apache-2.0
// Inbox: the messages of other threads to the engine thread: requests, cancellations, pauses, calls
// to clear the cache, updates of weights and inspections. It also knows which requests are
// unfinished, refuses requests beyond the limits of the queue, and lets the engine thread sleep
// until a message arrives.
//
//   other threads                          engine thread
//   submit() cancel() pause()         ->   wait() take()
//   clear_cache() inspect()
//   update_weights() wake()
//   drain() stop()                    <-   release_id() on_ended() show_queue() fail()
//
// Everything is bounded: arrivals by max_queued and the free batch slots; cancellations by the
// unfinished requests; pauses, clear calls and inspections by constants in inbox.cpp. At most one
// update of weights is pending.
//
// Threading: thread-safe, but the functions listed under "The engine thread" are only for that one.
// Invariants: the ids of unfinished requests are unique; sequence ids ascend in order of
//             submission, and the requests of one call have consecutive ones.
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
  std::optional<PauseMode> mode;  // mode of the pause; none: end the pause
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
  // Prompt to look up in the prefix tree; null: no look-up.
  std::unique_ptr<request::Sequence> prompt;
  std::function<void(Result<Inspection>)> on_done;
};

// The contents of the inbox, as take() moves them to the engine thread.
struct Mail {
  Arrivals arrivals;
  std::vector<int64_t> cancelled;  // ids of the sequences to cancel, each at most once
  std::vector<PauseCall> pauses;
  std::vector<ClearCall> clears;
  std::optional<UpdateCall> update;
  std::vector<InspectionCall> inspections;
};

struct InboxLimits {
  int64_t max_queued = 0;       // most requests that wait for a batch slot
  int64_t num_batch_slots = 0;  // most requests that run at once
  // True: the scheduler decides which requests wait, because an urgent arrival may displace another
  // one; then the inbox only limits arrivals.
  bool by_priority = false;
};

class Inbox {
 public:
  // `clock` outlives the inbox. `random_seed` starts the sequence of seeds for requests that have
  // none.
  Inbox(const Clock& clock, const InboxLimits& limits, uint64_t random_seed);

  // ---- Any thread ----

  // Accepts all requests of one call or none, and sets the sequence id, seed and arrival time of
  // each. Errors: kInvalidArgument for an id that is in use; kResourceExhausted when the queue is
  // full; kUnavailable after stop(), begin_drain() or fail().
  Status submit(Arrivals arrivals) HEDDLE_EXCLUDES(mutex_);

  // Has the engine thread end a request. An unknown or finished id is ignored.
  void cancel(const std::string& request_id) HEDDLE_EXCLUDES(mutex_);

  // Queue a call for the engine thread. A refused call gets its on_done immediately: with
  // kResourceExhausted when too many calls wait already, with kUnavailable after stop() or fail()
  // and, except for inspect(), after begin_drain().
  void pause(PauseCall call) HEDDLE_EXCLUDES(mutex_);
  void clear_cache(ClearCall call) HEDDLE_EXCLUDES(mutex_);
  void update_weights(UpdateCall call) HEDDLE_EXCLUDES(mutex_);
  void inspect(InspectionCall call) HEDDLE_EXCLUDES(mutex_);

  // Makes the engine thread run a round although no message has arrived.
  void wake() HEDDLE_EXCLUDES(mutex_);

  // Refuses requests from now on and ends a pause.
  void begin_drain() HEDDLE_EXCLUDES(mutex_);

  // Waits until every request has ended, at most for the timeout; then has the engine thread abort
  // the rest. Returns the number of aborted requests.
  int64_t finish_drain(double timeout_seconds) HEDDLE_EXCLUDES(mutex_);

  // Refuses everything from now on; wait() then returns Orders::stop.
  void stop() HEDDLE_EXCLUDES(mutex_);

  struct Load {
    int64_t num_arrivals = 0;    // requests that the engine thread has not taken yet
    int64_t num_unfinished = 0;  // accepted requests whose final event is not delivered
    // Time at which the last period with unfinished requests began.
    double busy_since = 0;
  };

  [[nodiscard]] Load load() const HEDDLE_EXCLUDES(mutex_);

  // OK, or the reason for which the engine failed, passed to fail().
  [[nodiscard]] Status failure() const HEDDLE_EXCLUDES(mutex_);

  // OK, or the error with which submit() refuses everything.
  [[nodiscard]] Status closed() const HEDDLE_EXCLUDES(mutex_);

  // For the log: one line per unfinished request, oldest first, for at most some thirty of them.
  [[nodiscard]] std::string describe() const HEDDLE_EXCLUDES(mutex_);

  // ---- The engine thread ----

  enum class Sleep {
    kNone,   // does not sleep: work is waiting
    kShort,  // sleeps until mail arrives or some milliseconds have passed
    kLong,   // sleeps until mail arrives
  };

  struct Orders {
    bool stop = false;
    bool abort_all = false;  // a drain ran out of time; reported once
  };

  Orders wait(Sleep sleep) HEDDLE_EXCLUDES(mutex_);

  // Moves new messages to `mail`. New arrivals and cancellations stay in the inbox while `mail`
  // still contains some that an interrupted round did not process.
  void take(Mail& mail) HEDDLE_EXCLUDES(mutex_);

  // Frees a request's id for reuse. Called before the request's final event.
  void release_id(const std::string& request_id) HEDDLE_EXCLUDES(mutex_);

  // Records that `count` requests have had their final event, `num_aborted_by_drain` of them
  // because a drain ran out of time.
  void on_ended(int64_t count, int64_t num_aborted_by_drain) HEDDLE_EXCLUDES(mutex_);

  // Records that `count` clear calls that the engine thread had taken are answered.
  void on_clears_answered(int64_t count) HEDDLE_EXCLUDES(mutex_);

  // Records that the update of weights is answered.
  void on_update_answered() HEDDLE_EXCLUDES(mutex_);

  // Sets the numbers by which submit() limits the queue: requests that wait in the scheduler, and
  // free batch slots. Called when all arrivals that were taken are in the scheduler.
  void show_queue(int64_t num_queued, int64_t num_free_slots) HEDDLE_EXCLUDES(mutex_);

  // Records that the engine has failed; everything is refused from now on. The first reason is
  // kept.
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
  CondVar mail_came_;    // wakes the engine thread in wait()
  CondVar became_idle_;  // wakes finish_drain()
  Mail mail_ HEDDLE_GUARDED_BY(mutex_);
  // The unfinished requests, keyed by request id.
  std::unordered_map<std::string, OpenRequest> open_ HEDDLE_GUARDED_BY(mutex_);
  int64_t num_unfinished_ HEDDLE_GUARDED_BY(mutex_) = 0;
  // Clear calls not answered yet, whether taken or not.
  int64_t num_open_clears_ HEDDLE_GUARDED_BY(mutex_) = 0;
  // A weight update is not answered yet, whether taken or not.
  bool update_open_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool woken_ HEDDLE_GUARDED_BY(mutex_) = false;
  // Requests that the engine thread has taken and that have not run yet.
  int64_t num_queued_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t num_free_slots_ HEDDLE_GUARDED_BY(mutex_);
  int64_t next_sequence_id_ HEDDLE_GUARDED_BY(mutex_) = 1;
  uint64_t seed_state_ HEDDLE_GUARDED_BY(mutex_);
  double busy_since_ HEDDLE_GUARDED_BY(mutex_) = 0;
  bool refusing_ HEDDLE_GUARDED_BY(mutex_) = false;  // draining or stopping: requests are refused
  bool abort_requested_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  int64_t num_aborted_by_drain_ HEDDLE_GUARDED_BY(mutex_) = 0;
  Status failure_ HEDDLE_GUARDED_BY(mutex_);
};

}  // namespace heddle::engine
