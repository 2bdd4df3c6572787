// SPDX-License-Identifier: Apache-2.0
// EngineMetrics: the engine's counters for Prometheus about the queue, steps, tokens, latencies,
// tenants, the prefix cache and its pools. docs/metrics.md lists every name.
//
// Threading: on_refused() and to_text() may be called from any thread, the other functions only
//            from the engine thread. No lock is held during a step.
// Cost:      some thirty atomic stores a step. After construction only the counters of new tenants
//            are allocated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include <heddle/options.h>
#include <heddle/request.h>
#include <heddle/status.h>

#include "core/metrics.h"
#include "engine/step_log.h"
#include "request/sequence.h"
#include "scheduler/scheduler.h"

namespace heddle::engine {

// Limit of MetricsOptions::max_tenants. Three counters have a label per tenant, and Prometheus
// keeps every label as long as the process lives.
inline constexpr int32_t kMaxMetricTenants = 64;

struct MetricsLimits {
  int64_t kv_tokens = 0;
  int32_t page_size = 1;
  int64_t state_slots = 0;
  int64_t pages_of_windows = 0;  // see PoolSizes::num_pages_of_windows()
  std::string draft_algorithm = "none";
  int32_t max_tenants = 0;
};

class EngineMetrics {
 public:
  EngineMetrics(MetricNames names, const std::string& model_name, const MetricsLimits& limits);

  // Called when the engine is about to run: how long loading the model took, and the whole start.
  void on_started(double load_seconds, double start_seconds);

  // Called when new weights have replaced the old ones.
  void on_weights_updated() { weight_updates_.add(1); }

  // Called when a request was refused on arrival or while it waited, or exceeded a time limit.
  void on_refused(const Status& reason);

  // Called when the sequence is in its first step and its cache report is filled in.
  void on_first_step(const request::Sequence& sequence, double queue_seconds);

  void on_first_token(double seconds);
  void on_next_token(double seconds_since_last);

  // Called after a step that verified drafts of a sequence, or tokens that its grammar forces.
  void on_verified(int64_t num_drafts, int64_t num_accepted);
  void on_forced(int64_t num_tokens, int64_t num_accepted);

  // Called after each step. `num_streams`: requests that now wait for their next token.
  void on_step(const StepFacts& step, int64_t num_streams, double decode_tokens_per_second);

  // Called with the last event of a request.
  void on_finished(const request::Sequence& sequence, const RequestEvent& event);

  // Sets the gauges; called after every step and every end of a request.
  void show(const scheduler::SchedulerStats& stats, int64_t num_paused);

  [[nodiscard]] std::string to_text() const { return registry_.to_text(); }

 private:
  // A Prometheus counter fed from a source that reports only its running total.
  struct Total {
    MetricCounter counter;
    int64_t counted = 0;

    void raise_to(int64_t total) {
      if (total > counted) counter.add(static_cast<double>(total - counted));
      counted = total;
    }
  };

  struct Tenant {
    MetricCounter requests, prompt_tokens, output_tokens;
  };

  void make_load();
  void make_requests();
  void make_steps();
  void make_cache();
  void count_decode_stall(const StepFacts& step, int64_t num_streams);
  void observe_stages(const request::Sequence& sequence, const RequestEvent& event);
  Tenant& tenant(const std::string& name);
  Tenant make_tenant(const std::string& label);

  MetricRegistry registry_;
  const MetricsLimits limits_;

  // Metrics of the load.
  MetricGauge running_, waiting_, oldest_wait_, paused_, kv_used_, kv_usage_, kv_cached_, kv_free_;
  MetricGauge states_used_, states_cached_, states_free_, state_usage_;
  MetricGauge new_token_ratio_, decode_context_, decode_rate_;
  MetricGauge load_seconds_, start_seconds_;
  MetricCounter weight_updates_;

  // Metrics of requests.
  MetricCounter requests_, aborted_, prompt_tokens_, output_tokens_, cached_tokens_;
  MetricCounter finished_[4];  // finished requests, indexed by FinishReason
  MetricCounter refused_[7];   // refused requests, by reason in the order of kRefusals
  MetricHistogram queue_seconds_, first_token_seconds_, next_token_seconds_, request_seconds_;
  MetricHistogram retractions_per_request_;
  MetricHistogram stage_seconds_[4];  // time in each stage, in the order of kStages
  // Counters of each tenant, keyed by its name, at most max_tenants.
  std::unordered_map<std::string, Tenant> tenants_;
  std::optional<Tenant> no_tenant_, other_tenants_;  // requests without a tenant, and those beyond
                                                     // max_tenants; unset if max_tenants is 0

  // Metrics of steps.
  MetricHistogram step_seconds_[3], plan_seconds_;
  MetricCounter busy_seconds_[3];
  MetricCounter computed_, reused_, decoded_;
  MetricCounter accepted_drafts_, rejected_drafts_, accepted_forced_, rejected_forced_;
  MetricHistogram verified_per_step_, accepted_per_step_;
  MetricGauge tokens_per_step_, acceptance_ratio_;
  int64_t num_verified_ = 0;  // drafts verified since the start
  int64_t num_accepted_ = 0;
  int64_t sequence_steps_ = 0;   // sum over steps of the sequences that decoded
  int64_t sequence_tokens_ = 0;  // tokens that those steps added to the sequences
  Total retractions_, retracted_input_, retracted_output_, preemptions_, preempted_tokens_;
  MetricHistogram decode_stall_seconds_;
  double stall_since_ = -1;  // end of the last step since which streams wait for a decode step, s;
                             // negative: no stream waits

  // Metrics of the cache.
  MetricGauge hit_ratio_;
  MetricGauge kv_locked_, states_locked_;
  MetricGauge window_used_, window_cached_, window_free_, window_usage_;
  MetricHistogram eviction_seconds_;
  double evicting_seconds_ = 0;  // seconds spent evicting since the start
  MetricCounter matched_tokens_, ghost_hits_, exact_repeats_, deferred_seconds_;
  MetricCounter lost_tokens_[4];  // prompt tokens computed again, by reason in the order of kLosses
  Total deferred_, evicted_tokens_, evicted_states_, evicted_windows_, published_, skipped_;
};

}  // namespace heddle::engine
