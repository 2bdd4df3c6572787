// SPDX-License-Identifier: Apache-2.0
// Delivery: turns drawn tokens into the events of requests, and ends requests. It owns every
// request that the engine has accepted and not yet answered to the end, counts tokens, and observes
// the latencies of requests.
//
// An event's `tokens` contains every token that was drawn, even the one that ended the text. Its
// `text` excludes the stop token and the stop text unless keep_stop_text is set. It holds back only
// characters that may still become a stop text or lack the rest of their UTF-8. The tokens that one
// step yields come in one event; those after the end of the text are dropped. Every request gets
// its tokens in order and exactly one `finish`. A draw that fails ends its own request with kError.
// Log probabilities of a prompt are kept until the request's first event.
// A callback that throws is logged and otherwise ignored.
//
// Threading: confined to the engine thread; callbacks run there.
// Cost:      a step of decoding allocates nothing, unless callbacks move out of their events.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include <heddle/inspection.h>
#include <heddle/request.h>

#include "core/clock.h"
#include "engine/engine_metrics.h"
#include "engine/inbox.h"
#include "engine/live_request.h"
#include "engine/step_log.h"
#include "request/batch_plan.h"
#include "request/step_output.h"
#include "scheduler/scheduler.h"

namespace heddle::engine {

class Delivery {
 public:
  // The references outlive the object. `metrics` is null when metrics are off. Requests end at
  // `context_length` tokens at the latest.
  Delivery(scheduler::Scheduler& scheduler, Inbox& inbox, EngineMetrics* metrics,
           const Clock& clock, int64_t context_length);

  // Takes ownership of a request. The address of its sequence stays valid until the request has
  // ended and no step in flight reads it.
  request::Sequence& add(std::unique_ptr<LiveRequest> live);

  [[nodiscard]] bool empty() const { return live_.empty(); }

  [[nodiscard]] int64_t num_live() const { return std::ssize(live_); }

  // Number of requests that have had their first token and whose clients wait for the next.
  [[nodiscard]] int64_t num_streams() const { return num_streams_; }

  // Called before a step is launched: counts the step's work and the sequences that start with it.
  StepFacts start(const request::BatchPlan& plan);

  // Called when a step has finished and the scheduler has counted it: delivers the tokens. `output`
  // fits the plan; log probabilities are moved out of it.
  void deliver(const request::BatchPlan& plan, request::StepOutput& output, double end_seconds);

  // Ends a request; its last event has the text that was held back and no more tokens. An unknown
  // id is ignored.
  void finish(int64_t sequence_id, Finish finish);

  // Ends all requests, oldest first. Returns how many were ended.
  int64_t finish_all(const Finish& finish);

  // Later events report that the weights were exchanged `count` times.
  void set_num_weight_updates(int64_t count) { num_weight_updates_ = count; }

  // Frees ended requests that no step in flight reads any more.
  void free_ended();

  // Number of final events since the last take_num_ended().
  [[nodiscard]] int64_t num_ended() const { return num_ended_; }

  [[nodiscard]] int64_t take_num_ended() { return std::exchange(num_ended_, 0); }

  // Copies the oldest `max_requests` requests into the inspection and counts all requests.
  void view_requests(int64_t max_requests, Inspection& inspection) const;

  // Totals since the start: prompt tokens of requests that have started, and drawn tokens.
  [[nodiscard]] int64_t prompt_tokens() const { return prompt_tokens_; }

  [[nodiscard]] int64_t output_tokens() const { return output_tokens_; }

 private:
  [[nodiscard]] bool take_scores(LiveRequest& live, std::span<request::ScoredToken> scored);
  void take_span(LiveRequest& live, std::span<request::SampledToken> drawn, double now);
  void observe_latency(LiveRequest& live, int64_t num_tokens, double now);
  void finish(LiveRequest& live, Finish finish);
  void clear_event();
  void send(LiveRequest& live, double now);
  void call(LiveRequest& live);
  void remove(LiveRequest& live);

  scheduler::Scheduler& scheduler_;
  Inbox& inbox_;
  EngineMetrics* const metrics_;
  const Clock& clock_;
  const int64_t context_length_;

  // Live requests, keyed by sequence id.
  std::unordered_map<int64_t, std::unique_ptr<LiveRequest>> live_;
  // The next two reserve as many entries as live_, because ending a request must not allocate.
  // Requests that ended while a step in flight still reads them.
  std::vector<std::unique_ptr<LiveRequest>> ended_;
  std::vector<int64_t> order_;  // sequence ids in the order in which finish_all() ends them

  RequestEvent event_;  // reused for every event, to save allocations
  int64_t num_ended_ = 0;
  int64_t num_streams_ = 0;
  int64_t num_weight_updates_ = 0;
  int64_t prompt_tokens_ = 0;
  int64_t output_tokens_ = 0;
};

}  // namespace heddle::engine
