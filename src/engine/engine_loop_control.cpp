// SPDX-License-Identifier: Apache-2.0
// What others ask of the loop beside requests: to clear the cache, to pause, to go on; and what it
// can say of itself when it is stuck.
#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "core/log.h"
#include "engine/engine_loop.h"
#include "engine/watchdog.h"

namespace heddle::engine {

namespace {

constexpr int64_t kMaxClears = 64;    // that wait for the engine to be idle
constexpr int64_t kMaxControls = 64;  // not taken yet
constexpr size_t kMaxDescribed = 32;  // requests

}  // namespace

void EngineLoop::clear_cache(double timeout_seconds, std::function<void(Status)> on_done) {
  const double deadline = clock_->now_seconds() + timeout_seconds;
  Status refusal;
  {
    const std::lock_guard lock(mutex_);
    refusal = ended();
    if (refusal.ok() && std::ssize(clears_) + num_clears_taken_ >= kMaxClears) {
      refusal = resource_exhausted(fmt::format(
          "control_queue_full: {} requests to clear the cache wait already", kMaxClears));
    }
    if (refusal.ok()) {
      clears_.push_back({deadline, timeout_seconds, std::move(on_done)});
      wake_.notify_one();
      return;
    }
  }
  on_done(std::move(refusal));
}

// ---- Pausing ----

void EngineLoop::pause(PauseMode mode, std::function<void(Status)> on_done) {
  control({.pause = mode, .on_done = std::move(on_done)});
}

void EngineLoop::resume(std::function<void(Status)> on_done) {
  control({.pause = std::nullopt, .on_done = std::move(on_done)});
}

void EngineLoop::control(Control control) {
  Status refusal;
  {
    const std::lock_guard lock(mutex_);
    refusal = ended();
    if (refusal.ok() && std::ssize(controls_) >= kMaxControls) {
      refusal = resource_exhausted(
          fmt::format("control_queue_full: {} pauses and resumptions wait already", kMaxControls));
    }
    if (refusal.ok()) {
      controls_.push_back(std::move(control));
      wake_.notify_one();
      return;
    }
  }
  control.on_done(std::move(refusal));
}

void EngineLoop::take_controls() {
  {
    const std::lock_guard lock(mutex_);
    std::move(controls_.begin(), controls_.end(), std::back_inserter(taken_controls_));
    controls_.clear();
  }
  // One that fails, or throws, is answered by end_controls().
  while (failure_.ok() && !taken_controls_.empty()) {
    apply(taken_controls_.front().pause);
    if (!failure_.ok()) break;
    const Control control = std::move(taken_controls_.front());
    taken_controls_.erase(taken_controls_.begin());
    control.on_done({});
  }
}

// Does nothing more once a step has failed: an engine that ends is not paused.
void EngineLoop::apply(std::optional<PauseMode> pause) {
  if (pause) {
    while (num_in_flight_ > 0) finish_step();
    if (!failure_.ok()) return;
    if (*pause == PauseMode::kAbort) finish_all({.reason = FinishReason::kAbort});
    if (*pause == PauseMode::kRetract) scheduler_->retract_all();
  }
  scheduler_->set_paused(pause.has_value());
  {
    const std::lock_guard lock(mutex_);
    if (paused_ && !pause) busy_since_ = clock_->now_seconds();
    paused_ = pause.has_value();
  }
  publish();
}

void EngineLoop::end_controls(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    std::move(controls_.begin(), controls_.end(), std::back_inserter(taken_controls_));
    controls_.clear();
  }
  for (const Control& control : std::exchange(taken_controls_, {})) control.on_done(status);
}

// ---- Clearing the cache ----

// Clears the cache for those who asked, if nothing is left to do; tells the ones whose time is up.
void EngineLoop::take_clears() {
  {
    const std::lock_guard lock(mutex_);
    std::move(clears_.begin(), clears_.end(), std::back_inserter(taken_clears_));
    clears_.clear();
    num_clears_taken_ = std::ssize(taken_clears_);
  }
  if (taken_clears_.empty()) return;
  const bool idle = live_.empty() || (paused_ && scheduler_->stats().num_running == 0);
  if (idle && num_in_flight_ == 0) {
    scheduler_->clear_cache();
    publish();
    end_clears({});
    return;
  }
  const double now = clock_->now_seconds();
  const auto late =
      std::stable_partition(taken_clears_.begin(), taken_clears_.end(),
                            [now](const ClearRequest& request) { return now < request.deadline; });
  for (auto request = late; request != taken_clears_.end(); ++request) {
    request->on_done(timed_out(fmt::format(
        "the cache is in use: {} requests run or wait; send it again when they are done, or with a "
        "longer timeout than {} s",
        live_.size(), request->timeout_seconds)));
  }
  taken_clears_.erase(late, taken_clears_.end());
}

void EngineLoop::end_clears(const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    std::move(clears_.begin(), clears_.end(), std::back_inserter(taken_clears_));
    clears_.clear();
    num_clears_taken_ = 0;
  }
  for (const ClearRequest& request : std::exchange(taken_clears_, {})) request.on_done(status);
}

// ---- The watchdog ----

void EngineLoop::run_watchdog() {
  Watchdog watchdog(options_.watchdog_seconds);
  std::unique_lock lock(mutex_);
  while (!watchdog_wake_.wait_for(lock, watchdog.period(), [this] { return stopping_; })) {
    const bool works = num_unfinished_ > 0 && !paused_ && failure_.ok();
    if (!watchdog.look(clock_->now_seconds(), stats_.steps, works)) continue;
    lock.unlock();
    log_error(fmt::format("no step has ended for {} s while requests wait. {}",
                          options_.watchdog_seconds, describe()));
    on_stuck_();
    lock.lock();
  }
}

std::string EngineLoop::describe() const {
  const std::lock_guard lock(mutex_);
  const double now = clock_->now_seconds();
  std::string text = fmt::format("The engine has computed {} steps; {} are in flight.",
                                 stats_.steps, num_steps_in_flight_);
  for (size_t i = 0; i < num_steps_in_flight_; ++i) {
    const StepFacts& step = steps_in_flight_[i];
    text += fmt::format(
        "\n  a step of {} sequences that decode, with {} tokens before them, {} prompt tokens and "
        "{} "
        "new sequences; handed out {:.1f} s ago",
        step.decode_sequences, step.decode_context, step.prefill_tokens, step.new_sequences,
        now - step.launched_seconds);
  }
  text += fmt::format(
      "\n  {} requests run and {} wait, {} not looked at yet; {} KV tokens and {} state slots are "
      "in use{}",
      stats_.num_running, stats_.num_waiting, inbox_.size(), stats_.kv_tokens_used,
      stats_.state_slots_used, paused_ ? "; paused" : "");
  // Of a request, what does not change any more.
  std::vector<const request::Sequence*> sequences;
  for (const auto& [id, live] : by_id_) sequences.push_back(&live->sequence);
  std::sort(sequences.begin(), sequences.end(),
            [](const auto* a, const auto* b) { return a->id < b->id; });
  for (size_t i = 0; i < std::min(sequences.size(), kMaxDescribed); ++i) {
    const request::Sequence& sequence = *sequences[i];
    text +=
        fmt::format("\n  request \"{}\": {} prompt tokens, at most {} new ones, came {:.1f} s ago",
                    sequence.request.id, sequence.num_prompt_tokens,
                    sequence.request.stop.max_new_tokens, now - sequence.timings.submit_seconds);
  }
  if (sequences.size() > kMaxDescribed) {
    text += fmt::format("\n  and {} more", sequences.size() - kMaxDescribed);
  }
  return text;
}

}  // namespace heddle::engine
