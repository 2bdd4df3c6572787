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
#include "reading_runner.h"

namespace heddle::oracle {

namespace {

using testing::FakeRunner;

constexpr int64_t kMaxSteps = 20000;

// One request on its way.
struct Live {
  const Arrival* arrival = nullptr;
  bool came = false;
  int64_t submitted_step = -1;  // negative: not yet, or refused
  int64_t first_cache = 0;      // of the caches that it may have met
  int64_t last_cache = 0;
  bool cancelled = false;
  bool cut_off = false;  // its engine was destroyed or lost its device

  std::vector<TokenId> tokens;
  std::string text;
  int64_t num_finishes = 0;
  Finish finish;
  CacheReport cache;
};

class Play {
 public:
  Play(const Scenario& scenario, Damage damage, testing::VerifyFault fault)
      : scenario_(scenario), damage_(damage), fault_(fault), live_(scenario.arrivals.size()) {
    for (size_t i = 0; i < live_.size(); ++i) live_[i].arrival = &scenario.arrivals[i];
  }

  Outcome run() {
    set_log_level(LogLevel::kOff);
    start_engine();
    bool busy = true;
    for (step_ = 0; busy || next_to_come(/*idle=*/true) != nullptr; ++step_) {
      if (step_ == kMaxSteps) {
        wrong("it does not come to an end");
        break;
      }
      if (step_ == scenario_.restart_step) restart();
      for (const Scenario::Clear& clear : scenario_.clears) {
        if (clear.step == step_) clear_cache(clear);
      }
      if (!busy && num_clears_waiting_ > 0) engine_->step();  // nothing runs that they wait for
      while (Live* next = next_to_come(!busy)) {
        submit(*next);
        busy = true;
      }
      for (Live& live : live_) {
        if (live.submitted_step < 0 || live.arrival->cancel_after < 0) continue;
        if (step_ == live.submitted_step + live.arrival->cancel_after) cancel(live);
      }
      for (const Pause& pause : scenario_.pauses) {
        if (step_ == pause.step) this->pause(pause.mode);
        if (step_ == pause.until) engine_->resume([](const Status&) {});
      }
      came_inside_ = false;
      busy = engine_->step() || came_inside_;
      engine_->check_invariants();
      if (lost_device_ && !engine_->health().ok()) restart();
    }
    stop_engine();
    for (const Live& live : live_) check(live);
    return std::move(outcome_);
  }

 private:
  void wrong(std::string what) { outcome_.wrong_answers.push_back(std::move(what)); }

  void start_engine() {
    ++cache_number_;
    device_ = std::make_unique<FakeRunner>(scenario_.sizes, scenario_.limits);
    device_->lazy = scenario_.lazy;
    device_->verify_fault = fault_;
    device_->vocabulary = scenario_.rules.vocabulary;
    device_->on_step = [this](const request::BatchPlan& plan) {
      int64_t tokens = 0;
      for (const auto& sequence : plan.sequences) tokens += sequence.num_rows();
      clock_.advance_seconds(scenario_.seconds_per_step * (1 + static_cast<double>(tokens) / 128));
      if (device_steps_++ != scenario_.failing_step) return Status();
      lost_device_ = true;
      return device_lost("the device fails on purpose");
    };
    device_->sequence_error = [this](const request::PlannedSequence& sequence, int64_t num_drawn) {
      const Live& live = *by_sequence_[static_cast<size_t>(sequence.sequence_id - 1)];
      return num_drawn == live.arrival->failing_draw ? internal_error("the draw fails on purpose")
                                                     : Status();
    };
    device_->branches_drafts = scenario_.branches_drafts;
    device_->make_draft = [this](TokenId right) {
      if (draft_dice_.percent(10)) return std::optional<TokenId>();
      return std::optional(
          draft_of(scenario_.drafts, right, scenario_.rules.vocabulary.num_tokens, draft_dice_));
    };
    by_sequence_.clear();
    std::unique_ptr<runner::Runner> runner =
        std::make_unique<PlanWatcher>(*device_, damage_, scenario_.seed, outcome_.counts.plans);
    if (scenario_.limits.drafter_reads_texts) {
      runner =
          std::make_unique<ReadingRunner>(std::move(runner), scenario_.seed,
                                          outcome_.counts.drafter_rows_taken, outcome_.complaints);
    }
    engine_ = make_engine(scenario_, std::move(runner), clock_);
  }

  // Waiting and running requests end here, and no new one can come.
  void end_engine() {
    ending_ = true;
    engine_.reset();
    ending_ = false;
    if (unanswered_pauses_ != 0) wrong("a pause was not answered exactly once");
    if (num_clears_waiting_ > 0) wrong("a call to clear the cache was never answered");
    outcome_.counts.plans.damages += device_->num_verify_faults();
    const auto& complaints = device_->complaints();
    outcome_.complaints.insert(outcome_.complaints.end(), complaints.begin(), complaints.end());
  }

  void stop_engine() {
    const Status health = engine_->health();
    if (!health.ok()) wrong(fmt::format("the engine stopped: {}", health.to_string()));
    if (outcome_.wrong_answers.empty()) check_idle();
    end_engine();
  }

  void restart() {
    for (Live& live : live_) {
      const bool lost = lost_device_ && live.finish.error.code() == StatusCode::kDeviceLost;
      live.cut_off |= live.submitted_step >= 0 && (live.num_finishes == 0 || lost);
    }
    lost_device_ = false;
    end_engine();
    for (const Live& live : live_) {
      if (live.cut_off && live.num_finishes == 0) wrong("an engine ended without a final event");
    }
    start_engine();
  }

  void clear_cache(const Scenario::Clear& clear) {
    ++num_clears_waiting_;
    engine_->clear_cache(clear.timeout_seconds, [this](const Status& status) {
      --num_clears_waiting_;
      if (status.ok()) {
        ++cache_number_;
        ++outcome_.counts.clears;
      } else {
        ++outcome_.counts.clears_refused;
        if (status.code() != StatusCode::kDeadlineExceeded &&
            status.code() != StatusCode::kUnavailable) {
          wrong(fmt::format("clearing the cache ends with {}", status.to_string()));
        }
      }
    });
  }

  // A request that follows another one comes at its end, or when no other request is left.
  Live* next_to_come(bool idle) {
    Live* follower = nullptr;
    for (Live& live : live_) {
      if (live.came) continue;
      if (live.arrival->follows < 0) return idle || live.arrival->step <= step_ ? &live : nullptr;
      if (follower == nullptr) follower = &live;
    }
    return idle ? follower : nullptr;
  }

  void cancel(Live& live) {
    if (ending_) return;
    live.cancelled = true;
    engine_->cancel(live.arrival->request.id);
  }

  void pause(PauseMode mode) {
    ++outcome_.counts.pauses;
    for (Live& live : live_) {
      if (mode == PauseMode::kAbort && live.num_finishes == 0) live.cancelled |= live.came;
    }
    ++unanswered_pauses_;
    engine_->pause(mode, [this](const Status&) { --unanswered_pauses_; });
  }

  void submit(Live& live) {
    const Request& request = live.arrival->request;
    ++outcome_.counts.requests;
    live.came = true;
    by_sequence_.push_back(&live);
    const Status status = engine_->submit(
        request, [this, &live](const RequestEvent& event) { receive(live, event); });
    if (status.ok()) {
      live.submitted_step = step_;
      live.first_cache = cache_number_;
      return;
    }
    by_sequence_.pop_back();
    ++outcome_.counts.refused;
    const bool full = status.code() == StatusCode::kResourceExhausted;
    const bool lost = lost_device_ && status.code() == StatusCode::kUnavailable;
    if (!(full && scenario_.limits_queue) && !lost) {
      wrong(fmt::format("{} is refused: {}", request.id, status.to_string()));
    }
  }

  void receive(Live& live, const RequestEvent& event) {
    const std::string& id = live.arrival->request.id;
    if (live.num_finishes > 0) wrong(fmt::format("{} gets an event after its end", id));
    const int64_t before = std::ssize(live.tokens);
    live.tokens.insert(live.tokens.end(), event.tokens.begin(), event.tokens.end());
    live.text += event.text;
    if (event.completion_tokens != std::ssize(live.tokens)) {
      wrong(fmt::format("{} gets {} as its number of tokens after {} tokens", id,
                        event.completion_tokens, live.tokens.size()));
    }
    const bool all_logprobs = std::equal(
        event.tokens.begin(), event.tokens.end(), event.logprobs.begin(), event.logprobs.end(),
        [](TokenId token, const auto& logprob) { return token == logprob.token; });
    if (live.arrival->request.return_logprobs ? !all_logprobs : !event.logprobs.empty()) {
      wrong(fmt::format("{} gets logprobs that are not its tokens'", id));
    }
    if (event.cached_tokens != event.cache.reused_tokens) {
      wrong(fmt::format("{} gets {} and {} as its number of cached tokens", id, event.cached_tokens,
                        event.cache.reused_tokens));
    }
    live.cache = event.cache;
    const int64_t cancel_at = live.arrival->cancel_at;
    if (before < cancel_at && cancel_at <= std::ssize(live.tokens)) cancel(live);
    check_drafts(live, event);
    if (!event.finish) return;
    ++live.num_finishes;
    live.finish = *event.finish;
    live.last_cache = cache_number_;
    if (ending_) return;
    for (Live& other : live_) {
      if (!other.came && other.arrival->follows == &live - live_.data()) {
        submit(other);
        came_inside_ = true;
      }
    }
  }

  // Every step that decodes gives a token, the drafts that it accepted and what the form forced;
  // the first token comes from the prompt.
  void check_drafts(const Live& live, const RequestEvent& event) {
    const DraftReport& drafts = event.drafts;
    const int64_t drawn = 1 + drafts.verify_steps + drafts.accepted_tokens + drafts.forced_tokens;
    const bool some = scenario_.drafts != Drafts::kNone;
    if (std::ssize(live.tokens) > drawn ||
        (!some && drafts.accepted_tokens + drafts.rejected_tokens > 0) ||
        (live.arrival->request.constraint == nullptr && drafts.forced_tokens > 0)) {
      wrong(fmt::format(
          "{} has {} tokens of {} steps that accepted {} drafts, rejected {} and forced {}",
          live.arrival->request.id, live.tokens.size(), drafts.verify_steps, drafts.accepted_tokens,
          drafts.rejected_tokens, drafts.forced_tokens));
    }
    if (!event.finish) return;
    outcome_.counts.accepted_drafts += drafts.accepted_tokens;
    outcome_.counts.rejected_drafts += drafts.rejected_tokens;
    outcome_.counts.forced_tokens += drafts.forced_tokens;
  }

  // Nothing runs or waits, and only the cache uses pages and slots.
  void check_idle() {
    const EngineStats stats = engine_->stats();
    if (stats.num_running + stats.num_waiting != 0) {
      wrong(fmt::format("{} requests run and {} wait at the end", stats.num_running,
                        stats.num_waiting));
    }
    if (stats.kv_tokens_used + stats.state_slots_used != 0) {
      wrong(fmt::format("{} tokens and {} slots are in use at the end", stats.kv_tokens_used,
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
    if (may_end_early(live) || (reason == FinishReason::kError && fails)) {
      ++outcome_.counts.ended_early;
      const auto most = static_cast<size_t>(fails ? failing : std::ssize(answer.tokens));
      const bool begins_alike =
          live.tokens.size() <= most &&
          std::equal(live.tokens.begin(), live.tokens.end(), answer.tokens.begin());
      const bool long_enough = may_end_early(live) || live.tokens.size() == most;
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
      wrong(fmt::format("{} gets {} bytes of text, alone {}", id, live.text.size(),
                        answer.text.size()));
    }
  }

  // Whether the scenario allows the way in which it ended.
  [[nodiscard]] bool may_end_early(const Live& live) const {
    const StatusCode code = live.finish.error.code();
    if (live.finish.reason == FinishReason::kAbort) {
      const bool late = scenario_.limits_time && code == StatusCode::kDeadlineExceeded;
      return live.cancelled || live.cut_off || (late && !live.tokens.empty());
    }
    if (live.finish.reason != FinishReason::kError) return false;
    return (live.cut_off && code == StatusCode::kDeviceLost) ||
           (scenario_.limits_time && code == StatusCode::kDeadlineExceeded &&
            live.tokens.empty()) ||
           (scenario_.limits_queue && code == StatusCode::kResourceExhausted &&
            live.tokens.empty());
  }

  void wrong_tokens(const Live& live) {
    wrong(fmt::format("{} gets [{}], alone [{}]", live.arrival->request.id,
                      fmt::join(live.tokens, " "), fmt::join(live.arrival->answer.tokens, " ")));
  }

  // A request can reuse at most what it shares with others of its namespace, even if nothing was
  // evicted, and nothing survives a cleared cache. The losses add up.
  void check_cache_report(const Live& live) {
    const CacheReport& report = live.cache;
    const Request& request = live.arrival->request;
    int64_t most = 0;
    for (const Live& other : live_) {
      if (&other == &live) continue;
      if (other.arrival->request.cache_namespace != request.cache_namespace) continue;
      if (other.last_cache < live.first_cache || live.last_cache < other.first_cache) continue;
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
    const CacheLoss& lost = report.lost;
    const int64_t once = report.reused_tokens + lost.eviction;
    if (std::min({lost.eviction, lost.missing_state, lost.grid, lost.last_token}) < 0 ||
        lost.grid >= scenario_.grid || lost.last_token > 1 || once > most ||
        lost.eviction + lost.missing_state + lost.grid + lost.last_token !=
            std::max(report.matched_tokens, once) - report.reused_tokens) {
      wrong(fmt::format(
          "{} reports {} reused and {} matched tokens of {} and shares {} with others, but lost {} "
          "to eviction, {} without a state, {} to the grid, {} at the end",
          request.id, report.reused_tokens, report.matched_tokens, request.prompt.size(), most,
          lost.eviction, lost.missing_state, lost.grid, lost.last_token));
    }
    outcome_.counts.ghost_hits += lost.eviction > 0 ? 1 : 0;
    outcome_.counts.requests_with_reuse += report.reused_tokens > 0 ? 1 : 0;
    outcome_.counts.reused_tokens += report.reused_tokens;
    outcome_.counts.unusable_tokens += report.matched_tokens - report.reused_tokens;
    outcome_.counts.exact_repeats += report.exact_repeat ? 1 : 0;
  }

  static int64_t num_shared(const std::vector<TokenId>& prompt, const Live& other) {
    const std::vector<TokenId>& begin = other.arrival->request.prompt;
    const std::vector<TokenId>& end = other.arrival->answer.path;
    size_t shared = 0;
    while (shared < prompt.size() && shared < begin.size() + end.size() &&
           prompt[shared] == (shared < begin.size() ? begin[shared] : end[shared - begin.size()])) {
      ++shared;
    }
    return static_cast<int64_t>(shared);
  }

  const Scenario& scenario_;
  Damage damage_;
  testing::VerifyFault fault_;
  ManualClock clock_;
  std::vector<Live> live_;
  std::vector<Live*> by_sequence_;  // ids count from 1 in every engine
  std::unique_ptr<FakeRunner> device_;
  Dice draft_dice_{scenario_.seed};
  std::unique_ptr<engine::EngineLoop> engine_;
  int64_t step_ = 0;
  int64_t device_steps_ = 0;  // of all devices
  bool lost_device_ = false;
  int64_t cache_number_ = 0;  // grows when a cache is cleared or another one begins
  int64_t num_clears_waiting_ = 0;
  bool came_inside_ = false;  // a request came inside an event of the last step
  bool ending_ = false;       // the engine is being destroyed
  int64_t unanswered_pauses_ = 0;
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
  pauses += other.pauses;
  ghost_hits += other.ghost_hits;
  clears += other.clears;
  clears_refused += other.clears_refused;
  accepted_drafts += other.accepted_drafts;
  rejected_drafts += other.rejected_drafts;
  forced_tokens += other.forced_tokens;
  drafter_rows_taken += other.drafter_rows_taken;
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

Outcome play(const Scenario& scenario, Damage damage, testing::VerifyFault fault) {
  return Play(scenario, damage, fault).run();
}

}  // namespace heddle::oracle
