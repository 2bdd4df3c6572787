// SPDX-License-Identifier: Apache-2.0
#include "engine/delivery.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "core/log.h"

namespace heddle::engine {

using request::BatchPlan;
using request::PlannedSequence;
using request::SampledToken;
using request::Sequence;
using request::SequenceStatus;
using request::SequenceTimings;
using request::StepOutput;

Delivery::Delivery(scheduler::Scheduler& scheduler, Inbox& inbox, EngineMetrics* metrics,
                   const Clock& clock, int64_t context_length)
    : scheduler_(scheduler),
      inbox_(inbox),
      metrics_(metrics),
      clock_(clock),
      context_length_(context_length) {}

Sequence& Delivery::add(std::unique_ptr<LiveRequest> live) {
  if (order_.capacity() <= live_.size()) {
    order_.reserve(2 * live_.size() + 8);
    ended_.reserve(2 * live_.size() + 8);
  }
  Sequence& sequence = live->sequence;
  live_.emplace(sequence.id, std::move(live));
  return sequence;
}

StepFacts Delivery::start(const BatchPlan& plan) {
  const double now = clock_.now_seconds();
  StepFacts facts;
  for (const PlannedSequence& planned : plan.sequences) {
    Sequence& sequence = live_.at(planned.sequence_id)->sequence;
    facts.draft_tokens += planned.drafts.count;
    if (planned.feeds_drawn_token || sequence.decoding()) {
      ++facts.decode_sequences;
      facts.decode_context += planned.context_tokens;
    } else {
      facts.prefill_tokens += planned.num_new_tokens();
    }
    if (sequence.timings.first_step_seconds >= 0) continue;
    sequence.timings.first_step_seconds = now;
    prompt_tokens_ += sequence.num_prompt_tokens;
    ++facts.new_sequences;
    facts.cached_tokens += sequence.cache_report.reused_tokens;
    if (metrics_ != nullptr) {
      metrics_->on_first_step(sequence, now - sequence.timings.submit_seconds);
    }
  }
  return facts;
}

void Delivery::view_requests(int64_t max_requests, Inspection& inspection) const {
  inspection.num_requests = num_live();
  std::vector<const Sequence*> oldest;
  oldest.reserve(live_.size());
  for (const auto& [id, live] : live_) oldest.push_back(&live->sequence);
  const auto shown = oldest.begin() + std::clamp<int64_t>(max_requests, 0, num_live());
  std::partial_sort(oldest.begin(), shown, oldest.end(),
                    [](const Sequence* a, const Sequence* b) { return a->id < b->id; });
  const double now = clock_.now_seconds();
  for (auto next = oldest.begin(); next != shown; ++next) {
    const Sequence& sequence = **next;
    RequestPhase phase = RequestPhase::kPrefill;
    if (sequence.status != SequenceStatus::kRunning) phase = RequestPhase::kWaiting;
    if (sequence.status == SequenceStatus::kRunning && sequence.decoding()) {
      phase = RequestPhase::kDecode;
    }
    inspection.requests.push_back(
        {.id = sequence.request.id,
         .phase = phase,
         .priority = sequence.request.priority,
         .tenant = sequence.request.tenant,
         .prompt_tokens = sequence.num_prompt_tokens,
         .computed_tokens = sequence.num_computed,
         .cached_tokens = sequence.cache_report.reused_tokens,
         .output_tokens = sequence.num_output_tokens(),
         .max_new_tokens = sequence.request.stop.max_new_tokens,
         .num_returns = int64_t{sequence.num_retractions} + sequence.num_preemptions,
         .age_seconds = now - sequence.timings.submit_seconds});
  }
}

void Delivery::deliver(const BatchPlan& plan, StepOutput& output, double end_seconds) {
  request::SpanReader<SampledToken> spans(output.tokens);
  request::SpanReader<request::ScoredToken> scores(output.scored);
  for (const PlannedSequence& planned : plan.sequences) {
    const auto scored = scores.next(planned.sequence_id);
    const auto drawn = planned.sample ? spans.next(planned.sequence_id) : std::span<SampledToken>();
    const auto found = live_.find(planned.sequence_id);
    if (found == live_.end()) continue;  // the request has ended since the launch
    // A request that ends here may be freed, and with it the memory `planned` points at.
    LiveRequest& live = *found->second;
    if (metrics_ != nullptr && !planned.drafts.empty() && !drawn.front().skipped) {
      const int64_t accepted = std::ssize(drawn) - 1;
      if (planned.drafts_are_forced) {
        metrics_->on_forced(planned.drafts.count, accepted);
      } else {
        metrics_->on_verified(planned.drafts.count, accepted);
      }
    }
    if (!take_scores(live, scored)) continue;
    if (!drawn.empty()) {
      take_span(live, drawn, end_seconds);
    } else if (!live.sequence.wants_tokens() && live.sequence.num_pending() == 0) {
      finish(live, {.reason = FinishReason::kLength});
    }
  }
}

// Keeps the log probabilities of a prompt's tokens. Returns false if one of them failed; the
// request has then ended.
bool Delivery::take_scores(LiveRequest& live, std::span<request::ScoredToken> scored) {
  for (request::ScoredToken& token : scored) {
    if (!token.error.ok()) {
      finish(live, {.reason = FinishReason::kError, .error = std::move(token.error)});
      return false;
    }
    live.prompt_logprobs.push_back(std::move(token.logprob));
  }
  return true;
}

void Delivery::take_span(LiveRequest& live, std::span<SampledToken> drawn, double now) {
  if (Status& status = live.sequence.constraint_status; !status.ok()) {
    finish(live, {.reason = FinishReason::kError, .error = std::move(status)});
    return;
  }
  Sequence& sequence = live.sequence;
  clear_event();
  for (SampledToken& sampled : drawn) {
    if (!sampled.error.ok() || event_.finish) break;
    event_.tokens.push_back(sampled.token);
    if (sequence.request.return_logprobs) event_.logprobs.push_back(std::move(sampled.logprob));
    event_.finish = live.take_token(sampled.token, context_length_, event_.text);
    event_.text_ends.push_back(static_cast<uint32_t>(event_.text.size()));
  }
  if (!event_.tokens.empty()) {
    observe_latency(live, std::ssize(event_.tokens), now);
    if (event_.finish) scheduler_.release(sequence, scheduler::Ending::kDone);
    const bool ends = event_.finish.has_value();
    send(live, now);
    if (ends) return;
  }
  SampledToken& last = drawn.back();
  if (!last.error.ok()) {
    finish(live, {.reason = FinishReason::kError, .error = std::move(last.error)});
  }
}

// Records the inter-token latency of `num_tokens` tokens that arrived together: the time since the
// last token is divided among them.
void Delivery::observe_latency(LiveRequest& live, int64_t num_tokens, double now) {
  SequenceTimings& timings = live.sequence.timings;
  output_tokens_ += num_tokens;
  if (timings.first_token_seconds < 0) timings.first_token_seconds = now;
  if (metrics_ != nullptr) {
    if (live.last_token_seconds < 0) {
      metrics_->on_first_token(now - timings.submit_seconds);
    } else {
      const double each = (now - live.last_token_seconds) / static_cast<double>(num_tokens);
      for (int64_t i = 0; i < num_tokens; ++i) metrics_->on_next_token(each);
    }
  }
  if (live.last_token_seconds < 0) ++num_streams_;
  live.last_token_seconds = now;
}

void Delivery::clear_event() {
  event_.tokens.clear();
  event_.text.clear();
  event_.text_ends.clear();
  event_.logprobs.clear();
  event_.prompt_logprobs.clear();
  event_.finish.reset();
}

void Delivery::finish(int64_t sequence_id, Finish finish) {
  const auto found = live_.find(sequence_id);
  if (found != live_.end()) this->finish(*found->second, std::move(finish));
}

void Delivery::finish(LiveRequest& live, Finish finish) {
  scheduler_.release(live.sequence, finish.reason == FinishReason::kLength
                                        ? scheduler::Ending::kDone
                                        : scheduler::Ending::kAborted);
  clear_event();
  live.flush(event_.text);
  event_.finish = std::move(finish);
  send(live, clock_.now_seconds());
}

int64_t Delivery::finish_all(const Finish& reason) {
  order_.clear();
  for (const auto& [id, live] : live_) order_.push_back(id);
  std::sort(order_.begin(), order_.end());
  for (const int64_t id : order_) finish(id, reason);
  return std::ssize(order_);
}

// Completes `event_` and passes it to the request's callback. A final event also ends the request.
void Delivery::send(LiveRequest& live, double now) {
  const Sequence& sequence = live.sequence;
  const SequenceTimings& timings = sequence.timings;
  if (!live.prompt_logprobs.empty()) event_.prompt_logprobs.swap(live.prompt_logprobs);
  event_.num_weight_updates = num_weight_updates_;
  event_.prompt_tokens = sequence.num_prompt_tokens;
  event_.completion_tokens = live.num_delivered;
  event_.cached_tokens = sequence.cache_report.reused_tokens;
  event_.cache = sequence.cache_report;
  event_.drafts = sequence.draft_report;
  event_.num_retractions = sequence.num_retractions;
  event_.queue_seconds =
      (timings.first_step_seconds < 0 ? now : timings.first_step_seconds) - timings.submit_seconds;
  event_.first_token_seconds =
      timings.first_token_seconds < 0 ? 0 : timings.first_token_seconds - timings.submit_seconds;
  event_.elapsed_seconds = now - timings.submit_seconds;
  const bool final = event_.finish.has_value();
  if (final) {
    if (metrics_ != nullptr) metrics_->on_finished(sequence, event_);
    inbox_.release_id(sequence.request.id);  // the callback may use it for the next request
  }
  call(live);
  if (final) remove(live);
}

void Delivery::call(LiveRequest& live) {
  if (!live.on_event) return;
  const std::string& id = live.sequence.request.id;
  try {
    live.on_event(std::move(event_));
  } catch (const std::exception& error) {
    log_error(fmt::format("the callback of request \"{}\" threw: {}", id, error.what()));
  } catch (...) {
    log_error(fmt::format("the callback of request \"{}\" threw", id));
  }
}

void Delivery::remove(LiveRequest& live) {
  ++num_ended_;
  if (live.last_token_seconds >= 0) --num_streams_;
  auto node = live_.extract(live.sequence.id);
  if (live.sequence.status != SequenceStatus::kFinished) ended_.push_back(std::move(node.mapped()));
}

void Delivery::free_ended() {
  std::erase_if(ended_, [](const std::unique_ptr<LiveRequest>& live) {
    return live->sequence.status == SequenceStatus::kFinished;
  });
}

}  // namespace heddle::engine
