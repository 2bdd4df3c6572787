// SPDX-License-Identifier: Apache-2.0
#include "engine/engine_metrics.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace heddle::engine {
namespace {

// Bucket bounds of latencies in seconds, from the times of small models on a CPU to the minutes of
// long queues.
constexpr double kLatencyBounds[] = {.001, .0025, .005, .01, .025, .05, .1,  .2,  .4,
                                     .6,   .8,    1,    2,   4,    6,   8,   10,  20,
                                     40,   60,    80,   100, 200,  400, 600, 1200};
constexpr double kTokenBounds[] = {.0005, .001, .002, .004, .006, .008, .01, .015, .02,
                                   .025,  .03,  .04,  .06,  .08,  .1,   .15, .2,   .3,
                                   .4,    .6,   .8,   1,    2,    4,    6,   8};
constexpr double kStepBounds[] = {.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5};
constexpr double kPlanBounds[] = {.000005, .00001, .000025, .00005, .0001,
                                  .00025,  .0005,  .001,    .0025,  .005};
constexpr double kDraftBounds[] = {0, 1, 2, 3, 4, 5, 6, 7, 11, 15, 31, 63};
constexpr double kRetractionBounds[] = {0, 1, 2, 3, 5, 10};

constexpr std::array kFinishes = {"stop", "length", "abort", "error"};
constexpr std::array kKinds = {"prefill", "decode", "mixed"};

// Stages of a request: before submit(), until its first step, until its first token, until its end.
constexpr std::array kStages = {"prepare", "queue", "prefill", "decode"};

// Why prompt tokens were computed again: the fields of CacheLoss.
constexpr std::array kLosses = {"eviction", "missing_state", "grid", "last_token"};

// Why requests are refused: the name at the beginning of the status's message, or the name of its
// code.
constexpr std::array<std::string_view, 7> kRefusals = {
    "displaced",         "tenant_queue_full", "queue_timeout", "running_timeout",
    "deadline_exceeded", "queue_full",        "shutting_down"};

size_t refusal_index(const Status& reason) {
  for (size_t i = 0; i < kRefusals.size(); ++i) {
    const std::string& message = reason.message();
    if (message.starts_with(kRefusals[i]) && message.substr(kRefusals[i].size(), 1) == ":") {
      return i;
    }
  }
  if (reason.code() == StatusCode::kDeadlineExceeded) return 4;
  return reason.code() == StatusCode::kResourceExhausted ? 5 : 6;
}

bool is_refusal(const Status& reason) {
  return reason.code() == StatusCode::kResourceExhausted ||
         reason.code() == StatusCode::kDeadlineExceeded ||
         reason.code() == StatusCode::kUnavailable;
}

double ratio(int64_t part, int64_t whole) {
  return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0;
}

}  // namespace

EngineMetrics::EngineMetrics(MetricNames names, const std::string& model_name,
                             const MetricsLimits& limits)
    : registry_(names, {{"model_name", model_name}}), limits_(limits) {
  make_load();
  make_requests();
  make_steps();
  make_cache();
}

void EngineMetrics::make_load() {
  running_ =
      registry_.gauge({"heddle_running_requests", "sglang:num_running_reqs"}, "Requests that run.");
  waiting_ =
      registry_.gauge({"heddle_waiting_requests", "sglang:num_queue_reqs"}, "Requests that wait.");
  oldest_wait_ = registry_.gauge({"heddle_queue_oldest_age_seconds"},
                                 "How long the oldest request waits that never ran.");
  paused_ = registry_.gauge({"heddle_paused_requests", "sglang:num_paused_reqs"},
                            "Requests that wait for the end of a pause.");
  kv_used_ = registry_.gauge({"heddle_kv_used_tokens", "sglang:num_used_tokens"},
                             "Tokens in the KV pages of running requests, in whole pages.");
  kv_usage_ = registry_.gauge({"heddle_kv_usage_ratio", "sglang:token_usage"},
                              "The same as a share of the pool.");
  registry_
      .gauge({"heddle_kv_capacity_tokens", "sglang:max_total_num_tokens"},
             "Tokens the KV pool holds.")
      .set(static_cast<double>(limits_.kv_tokens));
  new_token_ratio_ =
      registry_.gauge({"heddle_new_token_ratio", "sglang:new_token_ratio"},
                      "Share of the tokens requests may still draw that is set aside for them.");
  decode_context_ = registry_.gauge({"heddle_decode_context_tokens", "sglang:decode_sum_seq_lens"},
                                    "Tokens before the drawn ones, over the decoding requests.");
  decode_rate_ = registry_.gauge({"heddle_decode_tokens_per_second", "sglang:gen_throughput"},
                                 "Output tokens per second over 40 steps that decode.");
  load_seconds_ = registry_.gauge({"heddle_load_seconds", "sglang:engine_load_weights_time"},
                                  "How long the model took to load.");
  start_seconds_ = registry_.gauge({"heddle_start_seconds", "sglang:engine_startup_time"},
                                   "How long the engine took to start, the model included.");
  weight_updates_ =
      registry_.counter({"heddle_weight_updates_total"}, "Times that the weights were exchanged.");
}

void EngineMetrics::make_requests() {
  requests_ = registry_.counter({"heddle_requests_total", "sglang:num_requests_total"},
                                "Requests that were answered to their end, whatever that was.");
  aborted_ =
      registry_.counter({"heddle_requests_aborted_total", "sglang:num_aborted_requests_total"},
                        "Requests that were cancelled or ran out of time.");
  for (size_t i = 0; i < kFinishes.size(); ++i) {
    finished_[i] =
        registry_.counter({"heddle_requests_finished_total"},
                          "Answered requests by how they ended.", {{"reason", kFinishes[i]}});
  }
  for (size_t i = 0; i < kRefusals.size(); ++i) {
    refused_[i] = registry_.counter({"heddle_requests_refused_total"},
                                    "Requests that a limit turned away or ended.",
                                    {{"reason", std::string(kRefusals[i])}});
  }
  prompt_tokens_ = registry_.counter({"heddle_prompt_tokens_total", "sglang:prompt_tokens_total"},
                                     "Prompt tokens of answered requests.");
  output_tokens_ =
      registry_.counter({"heddle_generation_tokens_total", "sglang:generation_tokens_total"},
                        "Output tokens of answered requests.");
  cached_tokens_ =
      registry_.counter({"heddle_cached_tokens_total", "sglang:cached_tokens_total"},
                        "Prompt tokens of answered requests that came from the cache.");
  queue_seconds_ =
      registry_.histogram({"heddle_queue_time_seconds", "sglang:queue_time_seconds"},
                          "From the arrival of a request to its first step.", kLatencyBounds);
  first_token_seconds_ = registry_.histogram(
      {"heddle_time_to_first_token_seconds", "sglang:time_to_first_token_seconds"},
      "From the arrival of a request to its first token.", kLatencyBounds);
  next_token_seconds_ = registry_.histogram(
      {"heddle_inter_token_latency_seconds", "sglang:inter_token_latency_seconds"},
      "From a token of a request to its next.", kTokenBounds);
  request_seconds_ =
      registry_.histogram({"heddle_request_latency_seconds", "sglang:e2e_request_latency_seconds"},
                          "From the arrival of a request to its end.", kLatencyBounds);
  retractions_per_request_ =
      registry_.histogram({"heddle_retractions_per_request", "sglang:num_retractions"},
                          "How often an answered request was retracted.", kRetractionBounds);
  for (size_t i = 0; i < kStages.size(); ++i) {
    stage_seconds_[i] = registry_.histogram(
        {"heddle_request_stage_seconds", "sglang:per_stage_req_latency_seconds"},
        "How long answered requests spent in a stage.", kLatencyBounds, {{"stage", kStages[i]}});
  }
  if (limits_.max_tenants > 0) {
    no_tenant_ = make_tenant("(none)");
    other_tenants_ = make_tenant("(other)");
  }
}

void EngineMetrics::make_steps() {
  for (size_t i = 0; i < kKinds.size(); ++i) {
    step_seconds_[i] = registry_.histogram({"heddle_step_seconds"}, "How long steps take.",
                                           kStepBounds, {{"kind", kKinds[i]}});
    busy_seconds_[i] = registry_.counter(
        {"heddle_device_busy_seconds_total", "sglang:gpu_execution_seconds_total"},
        "Time in which a step was computed.", {{"category", kKinds[i]}});
  }
  plan_seconds_ = registry_.histogram({"heddle_plan_seconds"},
                                      "How long the scheduler takes to plan a step.", kPlanBounds);
  decode_stall_seconds_ = registry_.histogram(
      {"heddle_decode_stall_seconds"},
      "From the end of a step that decodes to the start of the next one, while streams wait.",
      kTokenBounds);
  const auto tokens = [this](const char* mode) {
    return registry_.counter({"heddle_realtime_tokens_total", "sglang:realtime_tokens_total"},
                             "Tokens as they are computed, found in the cache or drawn.",
                             {{"mode", mode}});
  };
  computed_ = tokens("prefill_compute");
  reused_ = tokens("prefill_cache");
  decoded_ = tokens("decode");
  const auto drafts = [this](const char* result) {
    return registry_.counter({"heddle_draft_tokens_total"},
                             "Drafts that were verified, and were what the model drew or not.",
                             {{"result", result}});
  };
  accepted_drafts_ = drafts("accepted");
  rejected_drafts_ = drafts("rejected");
  const auto forced = [this](const char* result) {
    return registry_.counter({"heddle_forced_tokens_total"},
                             "Tokens that forms of answers forced: those that the model drew took "
                             "no step of their own, of the others it spelled the text otherwise.",
                             {{"result", result}});
  };
  accepted_forced_ = forced("accepted");
  rejected_forced_ = forced("rejected");
  verified_per_step_ =
      registry_.histogram({"heddle_verified_drafts"},
                          "Drafts of a sequence in a step that verified some.", kDraftBounds);
  accepted_per_step_ = registry_.histogram(
      {"heddle_accepted_drafts"}, "Accepted drafts of a sequence in a step that verified some.",
      kDraftBounds);
  tokens_per_step_ = registry_.gauge(
      {"heddle_tokens_per_step", "sglang:spec_accept_length"},
      "Tokens that a sequence got from a step in which it decoded, since the start.");
  acceptance_ratio_ =
      registry_.gauge({"heddle_draft_acceptance_ratio", "sglang:spec_accept_rate"},
                      "Accepted drafts over all that were verified, since the start.");
  registry_
      .gauge({"heddle_speculation_info"}, "The algorithm that drafts, as a label; the value is 1.",
             {{"algorithm", limits_.draft_algorithm}})
      .set(1);
  retractions_.counter =
      registry_.counter({"heddle_retractions_total", "sglang:num_retracted_requests_total"},
                        "Times a running request gave its memory back, to be computed again.");
  retracted_input_.counter = registry_.counter(
      {"heddle_retracted_input_tokens_total", "sglang:num_retracted_input_tokens_total"},
      "Prompt tokens these had computed.");
  retracted_output_.counter = registry_.counter(
      {"heddle_retracted_output_tokens_total", "sglang:num_retracted_output_tokens_total"},
      "Output tokens these had computed.");
  preemptions_.counter =
      registry_.counter({"heddle_preemptions_total"},
                        "Times a running request gave its memory to a more urgent one.");
  preempted_tokens_.counter = registry_.counter({"heddle_preempted_tokens_total"},
                                                "Prompt and output tokens these had computed.");
}

void EngineMetrics::make_cache() {
  kv_cached_ = registry_.gauge({"heddle_kv_cached_tokens"},
                               "Tokens in pages that only the cache keeps: free when needed.");
  kv_locked_ = registry_.gauge({"heddle_kv_locked_tokens"},
                               "Tokens in pages of the cache that running requests share.");
  kv_free_ = registry_.gauge({"heddle_kv_free_tokens"}, "Tokens in free pages.");
  states_used_ = registry_.gauge({"heddle_state_slots_used"},
                                 "Recurrent states of running requests, or pinned by them.");
  states_cached_ =
      registry_.gauge({"heddle_state_slots_cached"}, "Recurrent states that only the cache keeps.");
  states_locked_ =
      registry_.gauge({"heddle_state_slots_locked"},
                      "Recurrent states of the cache that running requests start from.");
  states_free_ = registry_.gauge({"heddle_state_slots_free"}, "Free recurrent states.");
  state_usage_ = registry_.gauge({"heddle_state_usage_ratio", "sglang:mamba_usage"},
                                 "Used states as a share of the pool.");
  registry_.gauge({"heddle_state_slots_capacity"}, "Recurrent states the pool holds.")
      .set(static_cast<double>(limits_.state_slots));
  window_used_ = registry_.gauge({"heddle_window_pages_used"},
                                 "Pages of sliding layers that running requests hold.");
  window_cached_ = registry_.gauge({"heddle_window_pages_cached"},
                                   "Pages of sliding layers that only the cache keeps.");
  window_free_ = registry_.gauge({"heddle_window_pages_free"}, "Free pages of sliding layers.");
  window_usage_ = registry_.gauge({"heddle_window_usage_ratio", "sglang:swa_token_usage"},
                                  "Used pages of sliding layers as a share of their pool.");
  registry_.gauge({"heddle_window_pages_capacity"}, "Pages of sliding layers the pool holds.")
      .set(static_cast<double>(limits_.pages_of_windows));
  hit_ratio_ =
      registry_.gauge({"heddle_cache_hit_ratio", "sglang:cache_hit_rate"},
                      "Cached tokens over all prompt tokens of the last step with prefill.");
  matched_tokens_ = registry_.counter(
      {"heddle_cache_matched_tokens_total"},
      "Prompt tokens whose KV rows were there, whether reused or computed again.");
  for (size_t i = 0; i < kLosses.size(); ++i) {
    lost_tokens_[i] = registry_.counter({"heddle_cache_lost_tokens_total"},
                                        "Prompt tokens computed again that the cache knew, by what "
                                        "would have saved them.",
                                        {{"cause", kLosses[i]}});
  }
  ghost_hits_ =
      registry_.counter({"heddle_cache_ghost_hits_total"},
                        "Requests that would have reused more, had nothing been evicted.");
  exact_repeats_ = registry_.counter({"heddle_cache_exact_repeats_total"},
                                     "Prompts of which not even the last token was computed.");
  deferred_.counter =
      registry_.counter({"heddle_requests_deferred_total"},
                        "Requests that waited for another one to compute the prefix they share.");
  deferred_seconds_ =
      registry_.counter({"heddle_deferred_seconds_total"}, "How long these waited, together.");
  evicted_tokens_.counter =
      registry_.counter({"heddle_cache_evicted_tokens_total", "sglang:evicted_tokens_total"},
                        "Tokens the cache gave up to make room.");
  evicted_states_.counter = registry_.counter({"heddle_cache_evicted_states_total"},
                                              "Recurrent states the cache gave up to make room.");
  evicted_windows_.counter =
      registry_.counter({"heddle_cache_evicted_window_pages_total"},
                        "Pages of sliding layers the cache gave up to make room.");
  eviction_seconds_ =
      registry_.histogram({"heddle_cache_eviction_seconds", "sglang:eviction_duration_seconds"},
                          "How long the evictions of a step that needed some took.", kPlanBounds);
  published_.counter = registry_.counter({"heddle_snapshots_published_total"},
                                         "Recurrent states that entered the cache.");
  skipped_.counter = registry_.counter({"heddle_snapshots_skipped_total"},
                                       "Recurrent states that were wanted but had no slot.");
}

void EngineMetrics::on_refused(const Status& reason) {
  if (is_refusal(reason)) refused_[refusal_index(reason)].add();
}

void EngineMetrics::on_first_step(const request::Sequence& sequence, double queue_seconds) {
  const CacheReport& report = sequence.cache_report;
  queue_seconds_.observe(queue_seconds);
  matched_tokens_.add(static_cast<double>(report.matched_tokens));
  const CacheLoss& lost = report.lost;
  const std::array<int64_t, kLosses.size()> losses = {lost.eviction, lost.missing_state, lost.grid,
                                                      lost.last_token};
  for (size_t i = 0; i < losses.size(); ++i) {
    lost_tokens_[i].add(static_cast<double>(losses[i]));
  }
  if (lost.eviction > 0) ghost_hits_.add();
  if (report.exact_repeat) exact_repeats_.add();
  deferred_seconds_.add(std::max(report.deferred_seconds, 0.0));
}

void EngineMetrics::on_first_token(double seconds) { first_token_seconds_.observe(seconds); }

void EngineMetrics::on_next_token(double seconds_since_last) {
  next_token_seconds_.observe(seconds_since_last);
}

void EngineMetrics::on_started(double load_seconds, double start_seconds) {
  load_seconds_.set(load_seconds);
  start_seconds_.set(start_seconds);
}

void EngineMetrics::on_verified(int64_t num_drafts, int64_t num_accepted) {
  accepted_drafts_.add(static_cast<double>(num_accepted));
  rejected_drafts_.add(static_cast<double>(num_drafts - num_accepted));
  verified_per_step_.observe(static_cast<double>(num_drafts));
  accepted_per_step_.observe(static_cast<double>(num_accepted));
  num_verified_ += num_drafts;
  num_accepted_ += num_accepted;
  acceptance_ratio_.set(ratio(num_accepted_, num_verified_));
}

void EngineMetrics::on_forced(int64_t num_tokens, int64_t num_accepted) {
  accepted_forced_.add(static_cast<double>(num_accepted));
  rejected_forced_.add(static_cast<double>(num_tokens - num_accepted));
}

void EngineMetrics::on_step(const StepFacts& step, int64_t num_streams,
                            double decode_tokens_per_second) {
  count_decode_stall(step, num_streams);
  const size_t kind = !step.prefills() ? 1 : step.decode_sequences == 0 ? 0 : 2;
  plan_seconds_.observe(step.plan_seconds);
  step_seconds_[kind].observe(step.seconds);
  busy_seconds_[kind].add(std::max(step.seconds, 0.0));
  computed_.add(static_cast<double>(step.prefill_tokens));
  reused_.add(static_cast<double>(step.cached_tokens));
  decoded_.add(static_cast<double>(step.decode_sequences + step.accepted_drafts));
  if (step.decode_sequences > 0) {
    sequence_steps_ += step.decode_sequences;
    sequence_tokens_ += step.decode_sequences + step.accepted_drafts;
    tokens_per_step_.set(ratio(sequence_tokens_, sequence_steps_));
  }
  decode_context_.set(static_cast<double>(step.decode_context));
  decode_rate_.set(decode_tokens_per_second);
  if (step.prefills()) {
    hit_ratio_.set(ratio(step.cached_tokens, step.cached_tokens + step.prefill_tokens));
  }
}

// Measures how long steps without decoding delay streams. A stream begins with its first token.
void EngineMetrics::count_decode_stall(const StepFacts& step, int64_t num_streams) {
  const bool decodes = step.decode_sequences > 0;
  if (decodes && stall_since_ >= 0) {
    decode_stall_seconds_.observe(std::max(step.end_seconds - step.seconds - stall_since_, 0.0));
  }
  if (num_streams == 0) {
    stall_since_ = -1;
  } else if (decodes || stall_since_ < 0) {
    stall_since_ = step.end_seconds;
  }
}

void EngineMetrics::observe_stages(const request::Sequence& sequence, const RequestEvent& event) {
  const request::SequenceTimings& timings = sequence.timings;
  stage_seconds_[0].observe(std::max(sequence.request.waited_seconds, 0.0));
  stage_seconds_[1].observe(event.queue_seconds);
  if (timings.first_token_seconds < 0) return;
  stage_seconds_[2].observe(timings.first_token_seconds - timings.first_step_seconds);
  stage_seconds_[3].observe(event.elapsed_seconds - event.first_token_seconds);
}

EngineMetrics::Tenant EngineMetrics::make_tenant(const std::string& label) {
  const auto counter = [&](const char* name, const char* help) {
    return registry_.counter({name}, help, {{"tenant", label}});
  };
  return {.requests = counter("heddle_tenant_requests_total", "Answered requests by tenant."),
          .prompt_tokens = counter("heddle_tenant_prompt_tokens_total",
                                   "Prompt tokens of answered requests by tenant."),
          .output_tokens = counter("heddle_tenant_generation_tokens_total",
                                   "Output tokens of answered requests by tenant.")};
}

EngineMetrics::Tenant& EngineMetrics::tenant(const std::string& name) {
  if (name.empty()) return *no_tenant_;
  const auto found = tenants_.find(name);
  if (found != tenants_.end()) return found->second;
  if (std::ssize(tenants_) >= limits_.max_tenants) return *other_tenants_;
  return tenants_.emplace(name, make_tenant(name)).first->second;
}

void EngineMetrics::on_finished(const request::Sequence& sequence, const RequestEvent& event) {
  requests_.add();
  const FinishReason reason = event.finish->reason;
  finished_[static_cast<size_t>(reason)].add();
  if (reason == FinishReason::kAbort) aborted_.add();
  if (!event.finish->error.ok()) on_refused(event.finish->error);
  prompt_tokens_.add(static_cast<double>(event.prompt_tokens));
  output_tokens_.add(static_cast<double>(event.completion_tokens));
  cached_tokens_.add(static_cast<double>(event.cached_tokens));
  request_seconds_.observe(event.elapsed_seconds);
  retractions_per_request_.observe(sequence.num_retractions);
  observe_stages(sequence, event);
  if (limits_.max_tenants == 0) return;
  const Tenant& counters = tenant(sequence.request.tenant);
  counters.requests.add();
  counters.prompt_tokens.add(static_cast<double>(event.prompt_tokens));
  counters.output_tokens.add(static_cast<double>(event.completion_tokens));
}

void EngineMetrics::show(const scheduler::SchedulerStats& stats, int64_t num_paused) {
  const cache::PrefixCacheStats& cache = stats.cache;
  const int64_t cached = cache.pages_cached * limits_.page_size;
  running_.set(static_cast<double>(stats.num_running));
  waiting_.set(static_cast<double>(stats.num_waiting));
  oldest_wait_.set(stats.oldest_wait_seconds);
  paused_.set(static_cast<double>(num_paused));
  // Streams that wait during a pause do not count as stalled.
  if (num_paused > 0) stall_since_ = -1;
  kv_used_.set(static_cast<double>(stats.kv_tokens_used));
  kv_usage_.set(ratio(stats.kv_tokens_used, limits_.kv_tokens));
  kv_cached_.set(static_cast<double>(cached));
  kv_locked_.set(static_cast<double>(cache.pages_locked * limits_.page_size));
  kv_free_.set(static_cast<double>(limits_.kv_tokens - cache.pages_used * limits_.page_size));
  const int64_t states_used = cache.state_slots_used - cache.state_slots_cached;
  states_used_.set(static_cast<double>(states_used));
  states_cached_.set(static_cast<double>(cache.state_slots_cached));
  states_locked_.set(static_cast<double>(cache.state_slots_locked));
  states_free_.set(static_cast<double>(limits_.state_slots - cache.state_slots_used));
  state_usage_.set(ratio(states_used, limits_.state_slots));
  const int64_t window_used = cache.windows_used - cache.windows_cached;
  window_used_.set(static_cast<double>(window_used));
  window_cached_.set(static_cast<double>(cache.windows_cached));
  window_free_.set(static_cast<double>(limits_.pages_of_windows - cache.windows_used));
  window_usage_.set(ratio(window_used, limits_.pages_of_windows));
  if (cache.eviction_seconds > evicting_seconds_) {
    eviction_seconds_.observe(cache.eviction_seconds - evicting_seconds_);
    evicting_seconds_ = cache.eviction_seconds;
  }
  new_token_ratio_.set(stats.new_token_ratio);
  retractions_.raise_to(stats.num_retractions);
  retracted_input_.raise_to(stats.retracted_input_tokens);
  retracted_output_.raise_to(stats.retracted_output_tokens);
  preemptions_.raise_to(stats.num_preemptions);
  preempted_tokens_.raise_to(stats.preempted_tokens);
  deferred_.raise_to(stats.deferred_sequences);
  evicted_tokens_.raise_to(cache.evicted_tokens);
  evicted_states_.raise_to(cache.evicted_states);
  evicted_windows_.raise_to(cache.windows_evicted);
  published_.raise_to(cache.published_states);
  skipped_.raise_to(cache.skipped_snapshots);
}

}  // namespace heddle::engine
