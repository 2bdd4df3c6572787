// SPDX-License-Identifier: Apache-2.0
// FakeEngine says to each request what its script says, one event a step, on a thread of its own;
// a script without an end goes on with its last event until the request is cancelled. With
// FakeCodec it lets the server be tested without a model.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <heddle/engine.h>

#include "core/mutex.h"

namespace heddle::server {

inline Finish finish_of(FinishReason reason, Status error = {}) {
  Finish finish;
  finish.reason = reason;
  finish.error = std::move(error);
  return finish;
}

inline Finish stopped_by(TokenId token) {
  Finish finish;
  finish.matched_token = token;
  return finish;
}

inline Finish stopped_by(std::string text) {
  Finish finish;
  finish.matched_text = std::move(text);
  return finish;
}

// The events of an answer: one per text, each of one token, and the end.
inline std::vector<RequestEvent> answer_events(const std::vector<std::string>& texts,
                                               Finish finish = stopped_by(151645)) {
  std::vector<RequestEvent> events;
  for (const std::string& text : texts) {
    RequestEvent event;
    event.tokens = {static_cast<TokenId>(events.size() + 1)};
    event.text = text;
    events.push_back(event);
  }
  RequestEvent last;
  if (finish.matched_token) last.tokens = {*finish.matched_token};
  last.finish = std::move(finish);
  events.push_back(last);
  return events;
}

class FakeEngine final : public Engine {
 public:
  using Script = std::function<std::vector<RequestEvent>(const Request&)>;

  FakeEngine() {
    info_.name = "fake";
    info_.architecture = "FakeForCausalLM";
    info_.dtype = "float32";
    info_.device = "cpu";
    info_.vocab_size = 200000;
    info_.context_length = 32768;
    thread_ = std::thread([this] { run(); });
  }

  ~FakeEngine() override {
    {
      const MutexLock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  // The events of each request; set before requests come.
  Script script = [](const Request&) { return answer_events({"Hello", " there"}); };
  std::function<void(RequestEvent&)> touch;  // changes each event as it leaves; set likewise
  std::atomic<int> step_microseconds{0};
  std::atomic<bool> held{false};  // true: no step happens, as while it is paused

  // Decides which requests are refused from now on; null: none.
  void set_refuse(std::function<Status(const Request&)> refuse) {
    const MutexLock lock(mutex_);
    refuse_ = std::move(refuse);
  }

  // Why it has stopped, from now on.
  void set_health(Status health) {
    const MutexLock lock(mutex_);
    health_ = std::move(health);
  }

  [[nodiscard]] Status health() const override {
    const MutexLock lock(mutex_);
    return health_;
  }

  Status submit(Request request, EventCallback on_event) override {
    std::vector<Request> requests;
    requests.push_back(std::move(request));
    return submit_all(std::move(requests),
                      [on_event = std::move(on_event)](size_t, RequestEvent&& event) {
                        on_event(std::move(event));
                      });
  }

  Status submit_all(std::vector<Request> requests, BatchCallback on_event) override {
    const MutexLock lock(mutex_);
    if (draining_) return unavailable("the engine is shutting down");
    for (const Request& request : requests) {
      if (refuse_) HEDDLE_RETURN_IF_ERROR(refuse_(request));
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      submitted_.push_back(requests[i]);
      std::vector<RequestEvent> events = script(requests[i]);
      live_.push_back({std::move(requests[i]),
                       [on_event, i](RequestEvent&& event) { on_event(i, std::move(event)); },
                       std::move(events)});
    }
    changed_.notify_all();
    return ok_status();
  }

  std::atomic<size_t> max_call_size{100000};

  [[nodiscard]] Status check_call_size(size_t num_requests) const override {
    if (num_requests <= max_call_size) return {};
    return invalid_argument("n: too many answers for this engine");
  }

  void cancel(const std::string& request_id) override {
    const MutexLock lock(mutex_);
    cancelled_.insert(request_id);
    ++num_cancels_;
    changed_.notify_all();
  }

  int64_t drain(double timeout_seconds) override {
    const MutexLock lock(mutex_);
    const auto idle = [this]() HEDDLE_REQUIRES(mutex_) { return live_.empty(); };
    draining_ = true;
    (void)changed_.wait_for(mutex_, std::chrono::duration<double>(timeout_seconds), idle);
    const auto left = static_cast<int64_t>(live_.size());
    for (const Live& live : live_) cancelled_.insert(live.request.id);
    changed_.notify_all();
    changed_.wait(mutex_, idle);
    return left;
  }

  [[nodiscard]] std::string metrics_text() const override {
    return "# HELP heddle_fake Fake.\n# TYPE heddle_fake gauge\nheddle_fake 1\n";
  }

  // Sets the answer of clear_cache(), pause() and resume() from now on; OK: they do their work.
  void set_control_refusal(Status status) {
    const MutexLock lock(mutex_);
    control_refusal_ = std::move(status);
  }

  void clear_cache(double timeout_seconds, std::function<void(Status)> on_done) override {
    if (const Status refusal = control_refusal(); !refusal.ok()) return on_done(refusal);
    {
      const MutexLock lock(mutex_);
      clear_timeouts_.push_back(timeout_seconds);
    }
    on_done(num_live() == 0 ? ok_status() : timed_out("the cache is in use"));
  }

  [[nodiscard]] std::vector<double> clear_timeouts() const {
    const MutexLock lock(mutex_);
    return clear_timeouts_;
  }

  void pause(PauseMode mode, std::function<void(Status)> on_done) override {
    if (const Status refusal = control_refusal(); !refusal.ok()) return on_done(refusal);
    {
      const MutexLock lock(mutex_);
      pauses_.push_back(mode);
      paused_ = true;
      if (mode == PauseMode::kAbort) {
        for (const Live& live : live_) cancelled_.insert(live.request.id);
      }
    }
    on_done(ok_status());
  }

  void resume(std::function<void(Status)> on_done) override {
    if (const Status refusal = control_refusal(); !refusal.ok()) return on_done(refusal);
    {
      const MutexLock lock(mutex_);
      paused_ = false;
    }
    on_done(ok_status());
  }

  Status record_steps(int64_t max_steps, StepsCallback on_done) override {
    const MutexLock lock(mutex_);
    if (on_steps_) return invalid_argument("a recording of steps runs already");
    recorded_steps = max_steps;
    on_steps_ = std::move(on_done);
    return {};
  }

  Status stop_recording() override {
    StepsCallback on_done;
    {
      const MutexLock lock(mutex_);
      on_done.swap(on_steps_);
    }
    if (!on_done) return invalid_argument("no steps are being recorded");
    on_done({{.number = 7,
              .plan_seconds = 0.001,
              .launched_seconds = 10,
              .seconds = 0.5,
              .end_seconds = 10.5,
              .prefill_tokens = 3}});
    return {};
  }

  std::atomic<int64_t> recorded_steps{0};  // that were asked for

  void set_step_delay(double seconds) override { step_delay = seconds; }

  std::atomic<double> step_delay{0};

  [[nodiscard]] std::vector<PauseMode> pauses() const {
    const MutexLock lock(mutex_);
    return pauses_;
  }

  // The answer of update_weights() from now on, unless control calls are refused. After an OK one
  // events are of the new weights.
  void set_update_status(Status status) {
    const MutexLock lock(mutex_);
    update_status_ = std::move(status);
  }

  void update_weights(WeightUpdate update,
                      std::function<void(Result<WeightsUpdated>)> on_done) override {
    if (const Status refusal = control_refusal(); !refusal.ok()) return on_done(refusal);
    const MutexLock lock(mutex_);  // no event is made before the caller knows
    updates_.push_back(std::move(update));
    if (!update_status_.ok()) return on_done(update_status_);
    on_done(WeightsUpdated{.num_paused_requests = paused_ ? static_cast<int64_t>(live_.size()) : 0,
                           .num_weight_updates = ++num_weight_updates_});
  }

  [[nodiscard]] std::vector<WeightUpdate> updates() const {
    const MutexLock lock(mutex_);
    return updates_;
  }

  // The answer of inspect() from now on, unless control calls are refused.
  void set_inspection(Inspection inspection) {
    const MutexLock lock(mutex_);
    inspection_ = std::move(inspection);
  }

  void inspect(InspectionOptions options,
               std::function<void(Result<Inspection>)> on_done) override {
    if (const Status refusal = control_refusal(); !refusal.ok()) return on_done(refusal);
    Inspection answer;
    {
      const MutexLock lock(mutex_);
      inspected_ = std::move(options);
      answer = inspection_;
    }
    on_done(std::move(answer));
  }

  // The options of the latest inspection.
  [[nodiscard]] InspectionOptions inspected() const {
    const MutexLock lock(mutex_);
    return inspected_;
  }

  // Loads any folder but "missing"; the folder's name is the content.
  Result<std::shared_ptr<const Adapter>> load_adapter(
      const std::filesystem::path& folder) override {
    if (folder == "missing") return not_found("missing has no adapter_config.json");
    return std::make_shared<const Adapter>(
        Adapter{.slot = 0, .rank = 8, .content_hash = folder.string()});
  }

  [[nodiscard]] const EngineOptions& options() const override { return options_; }

  [[nodiscard]] EngineOptions& mutable_options() { return options_; }

  [[nodiscard]] const ModelInfo& model_info() const override { return info_; }

  [[nodiscard]] ModelInfo& mutable_model_info() { return info_; }

  [[nodiscard]] const MemoryPlan& memory_plan() const override { return plan_; }

  [[nodiscard]] MemoryPlan& mutable_memory_plan() { return plan_; }

  [[nodiscard]] EngineStats stats() const override {
    const MutexLock lock(mutex_);
    EngineStats stats;
    stats.num_running = static_cast<int64_t>(live_.size());
    stats.num_waiting = num_waiting;
    stats.waiting_tokens = waiting_tokens;
    stats.prefill_tokens_per_second = prefill_tokens_per_second;
    stats.steps = steps_;
    stats.last_step_seconds_ago = last_step_seconds_ago;
    stats.stuck_after_seconds = stuck_after_seconds;
    stats.paused = paused_;
    return stats;
  }

  std::atomic<double> last_step_seconds_ago{0};
  std::atomic<double> stuck_after_seconds{20};
  std::atomic<int64_t> num_waiting{0};
  std::atomic<int64_t> waiting_tokens{0};
  std::atomic<double> prefill_tokens_per_second{0};

  [[nodiscard]] const tokenizer::Tokenizer* tokenizer() const override { return nullptr; }

  [[nodiscard]] std::vector<Request> submitted() const {
    const MutexLock lock(mutex_);
    return submitted_;
  }

  [[nodiscard]] std::set<std::string> cancelled() const {
    const MutexLock lock(mutex_);
    return cancelled_;
  }

  [[nodiscard]] int num_cancels() const {
    const MutexLock lock(mutex_);
    return num_cancels_;
  }

  [[nodiscard]] size_t num_live() const {
    const MutexLock lock(mutex_);
    return live_.size();
  }

 private:
  [[nodiscard]] Status control_refusal() const {
    const MutexLock lock(mutex_);
    return control_refusal_;
  }

  struct Live {
    Request request;
    EventCallback on_event;
    std::vector<RequestEvent> events;
    size_t next = 0;
    int64_t completion_tokens = 0;
  };

  void run() {
    MutexLock lock(mutex_);
    while (true) {
      changed_.wait(mutex_,
                    [this]() HEDDLE_REQUIRES(mutex_) { return stopping_ || !live_.empty(); });
      if (live_.empty()) return;
      std::vector<std::pair<EventCallback, RequestEvent>> events;
      bool stepped = false;
      for (auto live = live_.begin(); live != live_.end();) {
        const bool aborted = stopping_ || cancelled_.contains(live->request.id);
        if ((held || paused_) && !aborted) {
          ++live;
          continue;
        }
        if (!aborted) stepped = true;
        RequestEvent event;
        if (aborted) {
          event.finish = finish_of(FinishReason::kAbort);
        } else {
          event = live->events[live->next];
          if (live->next + 1 < live->events.size()) ++live->next;
        }
        live->completion_tokens += static_cast<int64_t>(event.tokens.size());
        event.num_weight_updates = num_weight_updates_;
        event.prompt_tokens = static_cast<int64_t>(live->request.prompt.size());
        event.completion_tokens = live->completion_tokens;
        const bool last = event.finish.has_value();
        events.emplace_back(live->on_event, std::move(event));
        live = last ? live_.erase(live) : std::next(live);
      }
      if (stepped) ++steps_;
      const bool waits = held || paused_;
      lock.unlock();
      for (auto& [callback, event] : events) {
        if (touch) touch(event);
        callback(std::move(event));
      }
      events.clear();
      if (waits) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      } else if (step_microseconds > 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(step_microseconds));
      }
      lock.lock();
      changed_.notify_all();
    }
  }

  EngineOptions options_;
  ModelInfo info_;
  MemoryPlan plan_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::function<Status(const Request&)> refuse_ HEDDLE_GUARDED_BY(mutex_);
  Status health_ HEDDLE_GUARDED_BY(mutex_);
  Status control_refusal_ HEDDLE_GUARDED_BY(mutex_);
  std::list<Live> live_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<Request> submitted_ HEDDLE_GUARDED_BY(mutex_);
  std::set<std::string> cancelled_ HEDDLE_GUARDED_BY(mutex_);
  int num_cancels_ HEDDLE_GUARDED_BY(mutex_) = 0;
  std::vector<double> clear_timeouts_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<PauseMode> pauses_ HEDDLE_GUARDED_BY(mutex_);
  StepsCallback on_steps_ HEDDLE_GUARDED_BY(mutex_);
  Inspection inspection_ HEDDLE_GUARDED_BY(mutex_);
  InspectionOptions inspected_ HEDDLE_GUARDED_BY(mutex_);
  Status update_status_ HEDDLE_GUARDED_BY(mutex_);
  std::vector<WeightUpdate> updates_ HEDDLE_GUARDED_BY(mutex_);
  int64_t num_weight_updates_ HEDDLE_GUARDED_BY(mutex_) = 0;
  int64_t steps_ HEDDLE_GUARDED_BY(mutex_) = 0;
  bool paused_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool draining_ HEDDLE_GUARDED_BY(mutex_) = false;
  bool stopping_ HEDDLE_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace heddle::server
