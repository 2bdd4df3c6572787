// SPDX-License-Identifier: Apache-2.0
#include "engine/activity.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::engine {

void Activity::show(const EngineStats& stats) {
  const MutexLock lock(mutex_);
  const bool paused = stats_.paused;
  stats_ = stats;
  stats_.paused = paused;
}

void Activity::show_steps(std::span<const StepFacts> in_flight, double last_end_seconds) {
  const MutexLock lock(mutex_);
  num_steps_ = std::min(in_flight.size(), steps_.size());
  std::copy_n(in_flight.begin(), num_steps_, steps_.begin());
  last_progress_ = std::max(last_progress_, last_end_seconds);
}

void Activity::count_step(const StepFacts& ended) {
  const MutexLock lock(mutex_);
  allowance_.count(ended);
}

void Activity::set_paused(bool paused, double now_seconds) {
  const MutexLock lock(mutex_);
  if (stats_.paused && !paused) last_progress_ = now_seconds;
  stats_.paused = paused;
}

EngineStats Activity::stats(const Inbox::Load& inbox, double now_seconds) const {
  const MutexLock lock(mutex_);
  EngineStats stats = stats_;
  stats.num_waiting += inbox.num_arrivals;
  stats.stuck_after_seconds =
      allowance_.stuck_seconds() * allowance_.stretch(std::span(steps_).first(num_steps_));
  if (inbox.num_unfinished > 0 && !stats.paused) {
    const double since = std::max(last_progress_, inbox.busy_since);
    stats.last_step_seconds_ago = std::max(now_seconds - since, 0.0);
  }
  return stats;
}

double Activity::stretch() const {
  const MutexLock lock(mutex_);
  return allowance_.stretch(std::span(steps_).first(num_steps_));
}

std::string Activity::describe(double now_seconds) const {
  const MutexLock lock(mutex_);
  std::string text = fmt::format("The engine has computed {} steps; {} are in flight{}.",
                                 stats_.steps, num_steps_, stats_.paused ? "; it is paused" : "");
  for (size_t i = 0; i < num_steps_; ++i) {
    const StepFacts& step = steps_[i];
    text += fmt::format(
        "\n  a step of {} sequences that decode, with {} tokens before them, {} prompt tokens and "
        "{} new sequences; launched {:.1f} s ago",
        step.decode_sequences, step.decode_context, step.prefill_tokens, step.new_sequences,
        now_seconds - step.launched_seconds);
  }
  text += fmt::format("\n  {} requests run and {} wait; {} KV tokens and {} state slots are in use",
                      stats_.num_running, stats_.num_waiting, stats_.kv_tokens_used,
                      stats_.state_slots_used);
  return text;
}

}  // namespace heddle::engine
