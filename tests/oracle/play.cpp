// SPDX-License-Identifier: Apache-2.0
#include "play.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/clock.h"
#include "core/log.h"
#include "oracle_engine.h"
#include "support/fake_runner.h"

namespace heddle::oracle {

namespace {

using testing::FakeRunner;

constexpr int64_t kMaxSteps = 20000;

// One request on its way.
struct Live {
  const Arrival* arrival = nullptr;
  int64_t submitted_step = -1;  // negative: not yet, or refused
  bool cancelled = false;
  bool cut_off = false;  // its engine was destroyed

  std::vector<TokenId> tokens;
  std::string text;
  int64_t num_finishes = 0;
  Finish finish;
  RequestEvent last;  // without tokens, text and logprobs
};

class Play {
 public:
  Play(const Scenario& scenario, Damage damage)
      : scenario_(scenario), damage_(damage), live_(scenario.arrivals.size()) {
    for (size_t i = 0; i < live_.size(); ++i) live_[i].arrival = &scenario.arrivals[i];
  }

  Outcome run() {
    set_log_level(LogLevel::kOff);
    start_engine();
    size_t next = 0;
    bool busy = true;
    for (int64_t step = 0; busy || next < live_.size(); ++step) {
      if (step == kMaxSteps) {
        wrong("it does not come to an end");
        break;
      }
      if (step == scenario_.restart_step) restart();
      while (next < live_.size() && (!busy || live_[next].arrival->step <= step)) {
        submit(live_[next++], step);
        busy = true;
      }
      for (Live& live : live_) {
        if (live.submitted_step < 0 || live.arrival->cancel_after < 0 || live.cancelled) continue;
        if (step < live.submitted_step + live.arrival->cancel_after) continue;
        live.cancelled = true;
        engine_->cancel(live.arrival->request.id);
      }
      busy = engine_->step();
      engine_->check_invariants();
    }
    stop_engine();
    for (const Live& live : live_) check(live);
    return std::move(outcome_);
  }

 private:
  void wrong(std::string what) { outcome_.wrong_answers.push_back(std::move(what)); }

  void start_engine() {
    device_ = std::make_unique<FakeRunner>(scenario_.sizes);
    device_->lazy = scenario_.lazy;
    device_->vocabulary = scenario_.rules.vocabulary;
    device_->on_step = [this](const request::BatchPlan&) {
      clock_.advance_seconds(scenario_.seconds_per_step);
      return Status();
    };
    device_->sequence_error = [this](const request::PlannedSequence& sequence) {
      const Live& live = *by_sequence_[static_cast<size_t>(sequence.sequence_id - 1)];
      return FakeRunner::num_drawn(sequence) == live.arrival->failing_draw
                 ? internal_error("the draw fails on purpose")
                 : Status();
    };
    by_sequence_.clear();
    engine_ = make_engine(
        scenario_,
        std::make_unique<PlanWatcher>(*device_, damage_, scenario_.seed, outcome_.counts.plans),
        clock_);
  }

  void stop_engine() {
    const Status health = engine_->health();
    if (!health.ok()) wrong(fmt::format("the engine stopped: {}", health.to_string()));
    if (outcome_.wrong_answers.empty()) check_idle();
    engine_.reset();
    const auto& complaints = device_->complaints();
    outcome_.complaints.insert(outcome_.complaints.end(), complaints.begin(), complaints.end());
  }

  void restart() {
    for (Live& live : live_) live.cut_off |= live.submitted_step >= 0 && live.num_finishes == 0;
    const auto& complaints = device_->complaints();
    engine_.reset();
    outcome_.complaints.insert(outcome_.complaints.end(), complaints.begin(), complaints.end());
    for (const Live& live : live_) {
      if (live.cut_off && live.num_finishes == 0) wrong("an engine ended without a final event");
    }
    start_engine();
  }

  void submit(Live& live, int64_t step) {
    const Request& request = live.arrival->request;
    ++outcome_.counts.requests;
    by_sequence_.push_back(&live);
    const Status status =
        engine_->submit(request, [this, &live](const RequestEvent& event) { hear(live, event); });
    if (status.ok()) {
      live.submitted_step = step;
      return;
    }
    by_sequence_.pop_back();
    ++outcome_.counts.refused;
    wrong(fmt::format("{} is refused: {}", request.id, status.to_string()));
  }

  void hear(Live& live, const RequestEvent& event) {
    const std::string& id = live.arrival->request.id;
    if (live.num_finishes > 0) wrong(fmt::format("{} hears more after its end", id));
    live.tokens.insert(live.tokens.end(), event.tokens.begin(), event.tokens.end());
    live.text += event.text;
    if (event.completion_tokens != std::ssize(live.tokens)) {
      wrong(fmt::format("{} hears of {} tokens and got {}", id, event.completion_tokens,
                        live.tokens.size()));
    }
    if (live.num_finishes == 0 && event.cached_tokens != event.cache.reused_tokens) {
      wrong(fmt::format("{} hears of {} and of {} cached tokens", id, event.cached_tokens,
                        event.cache.reused_tokens));
    }
    live.last.cache = event.cache;
    if (!event.finish) return;
    ++live.num_finishes;
    live.finish = *event.finish;
  }

  // Nothing runs or waits, and without a cache nothing is held.
  void check_idle() {
    const EngineStats stats = engine_->stats();
    if (stats.num_running + stats.num_waiting != 0) {
      wrong(fmt::format("{} requests run and {} wait at the end", stats.num_running,
                        stats.num_waiting));
    }
    if (!scenario_.cache.enabled && stats.kv_tokens_used + stats.state_slots_used != 0) {
      wrong(fmt::format("{} tokens and {} slots are held at the end", stats.kv_tokens_used,
                        stats.state_slots_used));
    }
  }

  void check(const Live& live) {
    if (live.submitted_step < 0) return;  // was refused, which was noted
    const Answer& answer = live.arrival->answer;
    const std::string& id = live.arrival->request.id;
    if (live.num_finishes != 1) {
      wrong(fmt::format("{} has {} final events", id, live.num_finishes));
      return;
    }
    check_cache_report(live);
    const int64_t failing = live.arrival->failing_draw;
    const bool fails = failing >= 0 && failing < std::ssize(answer.tokens);
    const FinishReason reason = live.finish.reason;
    const bool may_abort = live.cancelled || live.cut_off;
    if ((reason == FinishReason::kAbort && may_abort) ||
        (reason == FinishReason::kError && fails)) {
      ++outcome_.counts.ended_early;
      const auto most = static_cast<size_t>(fails ? failing : std::ssize(answer.tokens));
      const bool begins_alike =
          live.tokens.size() <= most &&
          std::equal(live.tokens.begin(), live.tokens.end(), answer.tokens.begin());
      const bool long_enough = reason == FinishReason::kAbort || live.tokens.size() == most;
      if (!begins_alike || !long_enough) wrong_tokens(live);
      return;
    }
    ++outcome_.counts.whole_answers;
    if (fails) wrong(fmt::format("{} goes on after a failed draw", id));
    if (live.tokens != answer.tokens) wrong_tokens(live);
    if (reason != answer.reason || live.finish.matched_token != answer.matched_token ||
        live.finish.matched_text != answer.matched_text) {
      wrong(fmt::format("{} ends with reason {} ({}), alone with {}", id, static_cast<int>(reason),
                        live.finish.error.to_string(), static_cast<int>(answer.reason)));
    }
    if (live.text != answer.text) {
      wrong(fmt::format("{} hears {} bytes of text, alone {}", id, live.text.size(),
                        answer.text.size()));
    }
  }

  void wrong_tokens(const Live& live) {
    wrong(fmt::format("{} gets [{}], alone [{}]", live.arrival->request.id,
                      fmt::join(live.tokens, " "), fmt::join(live.arrival->answer.tokens, " ")));
  }

  // Nobody can reuse more than what it shares with others of its namespace.
  void check_cache_report(const Live& live) {
    const CacheReport& report = live.last.cache;
    const Request& request = live.arrival->request;
    int64_t most = 0;
    for (const Live& other : live_) {
      if (&other == &live) continue;
      if (other.arrival->request.cache_namespace != request.cache_namespace) continue;
      most = std::max(most, num_shared(request.prompt, other));
    }
    const int64_t computed = report.exact_repeat ? 0 : 1;
    if (report.reused_tokens < 0 || report.reused_tokens > report.matched_tokens ||
        report.reused_tokens > std::ssize(request.prompt) - computed ||
        report.matched_tokens > most || (!scenario_.cache.enabled && report.matched_tokens > 0)) {
      wrong(
          fmt::format("{} reports {} reused and {} matched tokens of {}, exact repeat {}, and "
                      "shares {} with others",
                      request.id, report.reused_tokens, report.matched_tokens,
                      request.prompt.size(), report.exact_repeat, most));
    }
    outcome_.counts.requests_with_reuse += report.reused_tokens > 0 ? 1 : 0;
    outcome_.counts.reused_tokens += report.reused_tokens;
    outcome_.counts.unusable_tokens += report.matched_tokens - report.reused_tokens;
    outcome_.counts.exact_repeats += report.exact_repeat ? 1 : 0;
  }

  static int64_t num_shared(const std::vector<TokenId>& prompt, const Live& other) {
    const std::vector<TokenId>& begin = other.arrival->request.prompt;
    const std::vector<TokenId>& end = other.arrival->answer.tokens;
    size_t shared = 0;
    while (shared < prompt.size() && shared < begin.size() + end.size() &&
           prompt[shared] == (shared < begin.size() ? begin[shared] : end[shared - begin.size()])) {
      ++shared;
    }
    return static_cast<int64_t>(shared);
  }

  const Scenario& scenario_;
  Damage damage_;
  ManualClock clock_;
  std::vector<Live> live_;
  std::vector<Live*> by_sequence_;  // ids count from 1 in every engine
  std::unique_ptr<FakeRunner> device_;
  std::unique_ptr<engine::EngineLoop> engine_;
  Outcome outcome_;
};

}  // namespace

PlayCounts& PlayCounts::operator+=(const PlayCounts& other) {
  plans += other.plans;
  requests += other.requests;
  refused += other.refused;
  whole_answers += other.whole_answers;
  ended_early += other.ended_early;
  requests_with_reuse += other.requests_with_reuse;
  reused_tokens += other.reused_tokens;
  unusable_tokens += other.unusable_tokens;
  exact_repeats += other.exact_repeats;
  retractions += other.retractions;
  preemptions += other.preemptions;
  return *this;
}

std::string Outcome::to_string() const {
  std::string text;
  const auto append = [&text](const char* title, const std::vector<std::string>& lines) {
    constexpr size_t kMost = 8;
    if (lines.empty()) return;
    text += fmt::format("{} ({}):\n", title, lines.size());
    for (size_t i = 0; i < std::min(kMost, lines.size()); ++i) {
      text += fmt::format("  {}\n", lines[i]);
    }
  };
  append("wrong answers", wrong_answers);
  append("complaints of the device", complaints);
  return text;
}

Outcome play(const Scenario& scenario, Damage damage) { return Play(scenario, damage).run(); }

}  // namespace heddle::oracle
