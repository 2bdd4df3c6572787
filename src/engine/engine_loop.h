// SPDX-License-Identifier: Apache-2.0
// EngineLoop: the Engine behind Engine::create(). One thread takes requests from a bounded queue,
// asks the scheduler for the next step, has the runner compute it, and turns tokens into events.
//
// Steps overlap: while the runner computes one, the loop books the one before and plans the next,
// so that the device never waits for the host. A request that ends is in one more step, which
// leaves it out or whose result for it is dropped. SchedulingOptions::overlap = false: one step at
// a time.
//
// What an event carries: `tokens` has every token that was drawn, also the one that ended the text;
// `text` leaves out the stop token and the stop text unless keep_stop_text says otherwise, and
// holds back only characters that may still become a stop text or lack the rest of their UTF-8.
// Every accepted request gets events with the tokens in order and exactly one `finish`.
//
// When things go wrong: a draw that fails ends its own request with kError. A step that fails, an
// output that does not fit the plan or an exception of a library end all requests with kError, and
// the engine refuses new ones: health() says why. A callback that throws is logged and otherwise
// ignored.
//
// A paused loop computes nothing and does the rest: it takes requests in, cancels them, ends those
// whose time is up.
//
// Threading:  submit(), cancel(), stats(), health(), drain(), pause() and resume() are thread-safe;
//             an idle loop sleeps on a condition variable. Drive::kManual starts no thread: then
//             everything is confined to the thread that calls step(), and time stands still unless
//             the clock is moved.
// Cost:       a step of decoding allocates nothing of its own once its vectors have grown.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <heddle/engine.h>

#include "core/clock.h"
#include "engine/engine_metrics.h"
#include "engine/live_request.h"
#include "engine/step_facts.h"
#include "engine/step_log.h"
#include "request/batch_plan.h"
#include "runner/runner.h"
#include "scheduler/scheduler.h"
#include "tokenizer/tokenizer.h"

namespace heddle::engine {

enum class Drive {
  kThread,  // an engine thread of its own
  kManual,  // the owner calls step()
};

struct EngineParts {
  std::unique_ptr<runner::Runner> runner;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer;  // null: token ids in and out only
  ModelInfo info;
  MemoryPlan plan;
  EngineOptions options;           // what is asked of the loop; the runner was made of the rest
  std::function<void()> on_stuck;  // after the watchdog's log; empty: abort
  const Clock* clock = nullptr;    // outlives the loop; null: the machine's
  Drive drive = Drive::kThread;    // only with a thread there is a watchdog
};

class EngineLoop final : public Engine {
 public:
  // `parts.runner` is there (checked). The context length becomes at most what the KV pool holds.
  // Errors: kInvalidArgument naming an option, its value and what it may be; kResourceExhausted
  // when the system has no thread to give.
  static Result<std::unique_ptr<EngineLoop>> create(EngineParts parts);

  ~EngineLoop() override;

  Status submit(Request request, EventCallback on_event) override;
  Status submit_all(std::vector<Request> requests, BatchCallback on_event) override;
  [[nodiscard]] Status check_call_size(size_t num_requests) const override;
  void cancel(const std::string& request_id) override;
  int64_t drain(double timeout_seconds) override;
  [[nodiscard]] EngineStats stats() const override;
  [[nodiscard]] Status health() const override;
  [[nodiscard]] std::string metrics_text() const override;
  void clear_cache(double timeout_seconds, std::function<void(Status)> on_done) override;
  void pause(PauseMode mode, std::function<void(Status)> on_done) override;
  void resume(std::function<void(Status)> on_done) override;

  [[nodiscard]] const EngineOptions& options() const override { return options_; }

  [[nodiscard]] const ModelInfo& model_info() const override { return info_; }

  [[nodiscard]] const MemoryPlan& memory_plan() const override { return memory_plan_; }

  [[nodiscard]] const tokenizer::Tokenizer* tokenizer() const override { return tokenizer_.get(); }

  // Drive::kManual only: takes what was submitted or cancelled, plans a step if there is one and
  // books one if enough are in flight. False when nothing is left to run or to book.
  bool step();

  // What the engine is doing, as far as other threads may know: steps in flight, counters,
  // requests. For the log, when it does nothing any more.
  [[nodiscard]] std::string describe() const;

  // Drive::kManual only: the scheduler's own proof, or an abort.
  void check_invariants() const { scheduler_->check_invariants(); }

 private:
  struct ClearRequest {
    double deadline = 0;
    double timeout_seconds = 0;
    std::function<void(Status)> on_done;
  };

  // A pause, or with no mode its end.
  struct Control {
    std::optional<PauseMode> pause;
    std::function<void(Status)> on_done;
  };

  explicit EngineLoop(EngineParts parts);

  using Arrivals = std::vector<std::unique_ptr<LiveRequest>>;

  Status prepare(Request request, EventCallback on_event, Arrivals& arrivals) const;
  Status enqueue(Arrivals arrivals);
  Status claim_ids(const Arrivals& arrivals);
  Status refused(Status status, size_t num_requests);
  [[nodiscard]] Status ended() const;
  void run_thread();
  void run_watchdog();
  [[nodiscard]] bool has_work_to_do() const;  // with the lock held
  void step_guarded();
  void take_inbox();
  void queue_call();
  void run_step();
  [[nodiscard]] bool launch_step();
  void finish_step();
  void drop_steps();
  void take_dropped();
  // engine_loop_control.cpp
  void control(Control control);
  void take_controls();
  void apply(std::optional<PauseMode> pause);
  void end_controls(const Status& status);
  void take_clears();
  void end_clears(const Status& status);

  void forget_ended();
  void take_token(LiveRequest& live, request::SampledToken& sampled);
  void finish(LiveRequest& live, Finish finish);
  int64_t finish_all(const Finish& finish);
  int64_t abort_all();
  void set_failure(const Status& status);
  void fail(const Status& status);
  void deliver(LiveRequest& live);
  scheduler::SchedulerStats publish();  // what it published
  void show_steps_in_flight();          // with the lock held
  [[nodiscard]] Status check_output(const request::BatchPlan& plan,
                                    const request::StepOutput& output) const;

  // Constant after construction, or with threads of their own rules.
  SteadyClock steady_clock_;
  const Clock* clock_;
  EngineOptions options_;
  ModelInfo info_;
  MemoryPlan memory_plan_;
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;
  std::unique_ptr<runner::Runner> runner_;
  std::unique_ptr<scheduler::Scheduler> scheduler_;  // engine thread; check_*() from any
  int32_t page_size_;
  int64_t max_at_once_ = 0;  // what runs and waits when it all comes to an idle engine
  std::unique_ptr<EngineMetrics> metrics_;  // null: off
  std::function<void()> on_stuck_;
  Status out_of_memory_;  // made in time: it cannot be made any more when it is needed

  // Engine thread only.
  std::unordered_map<int64_t, std::unique_ptr<LiveRequest>> live_;  // by sequence id
  Arrivals taken_;
  std::vector<request::Sequence*> call_;  // of those taken
  std::vector<int64_t> taken_cancels_;
  std::vector<std::unique_ptr<LiveRequest>> ended_;  // answered; a step in flight still reads them
  std::array<request::BatchPlan, runner::kMaxStepsInFlight> plans_;  // taken in turn
  std::array<StepFacts, runner::kMaxStepsInFlight> facts_;           // of these
  StepLog step_log_;
  std::vector<ClearRequest> taken_clears_;
  std::vector<Control> taken_controls_;
  size_t next_plan_ = 0;
  size_t num_in_flight_ = 0;
  std::vector<scheduler::Dropped> dropped_;
  RequestEvent event_;  // reused
  double now_ = 0;      // of the step
  double step_end_ = 0;
  int64_t num_arriving_ = 0;  // taken, not yet with the scheduler
  bool aborting_for_drain_ = false;
  int64_t steps_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t output_tokens_ = 0;

  // Guarded by mutex_.
  mutable std::mutex mutex_;
  std::condition_variable wake_;                         // the engine thread waits here
  std::condition_variable idle_;                         // drain() waits here
  Arrivals inbox_;                                       // at most max_at_once_
  std::vector<int64_t> cancels_;                         // sequence ids, each at most once
  std::vector<ClearRequest> clears_;                     // at most kMaxClears
  std::unordered_map<std::string, LiveRequest*> by_id_;  // accepted, no final event yet
  int64_t num_clears_taken_ = 0;                         // and not answered
  std::vector<Control> controls_;                        // at most kMaxControls
  bool paused_ = false;                                  // written by the engine thread only
  int64_t num_unfinished_ = 0;                           // accepted, final event not yet delivered
  int64_t num_queued_ = 0;                               // taken from the inbox, never ran
  int64_t num_places_ = 0;                               // for arrivals that need not wait
  int64_t next_sequence_id_ = 1;
  uint64_t seed_state_;
  bool refusing_ = false;         // draining or stopping
  bool abort_requested_ = false;  // drain() ran out of time
  bool stopping_ = false;
  int64_t num_aborted_by_drain_ = 0;
  Status failure_;  // written by the engine thread only
  EngineStats stats_;
  double busy_since_ = 0;
  double last_step_end_ = 0;
  std::array<StepFacts, runner::kMaxStepsInFlight> steps_in_flight_;  // oldest first
  size_t num_steps_in_flight_ = 0;                                    // of these
  std::condition_variable watchdog_wake_;                             // it ends

  std::thread thread_;  // last: these start when everything above is there
  std::thread watchdog_;
};

}  // namespace heddle::engine
