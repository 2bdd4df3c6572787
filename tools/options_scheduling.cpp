// SPDX-License-Identifier: Apache-2.0
#include "options_scheduling.h"

namespace heddle::tools {
namespace {

void declare_what_has_effect(Options& options, const SchedulingOptions& scheduling) {
  options.has_effect_if(
      "--prefills-per-decode", [&scheduling] { return !scheduling.mixed_batches; },
      "while prefill and decoding share steps; add --no-mixed-batches");
  options.has_effect_if(
      "--cache-aware-max-wait-secs",
      [&scheduling] { return scheduling.policy == "lpm" || scheduling.policy == "dfs-weight"; },
      "with this policy; use --policy lpm or dfs-weight");
  const auto by_priority = [&scheduling] {
    return scheduling.enable_priority || scheduling.policy == "priority";
  };
  for (const char* name :
       {"--low-values-first", "--default-priority", "--preemption", "--preemption-threshold",
        "--max-preemptions", "--preemption-min-run-secs", "--priority-aging-secs"}) {
    options.has_effect_if(name, by_priority, "without priorities; add --enable-priority");
  }
  for (const char* name :
       {"--preemption-threshold", "--max-preemptions", "--preemption-min-run-secs"}) {
    options.has_effect_if(
        name, [&scheduling] { return scheduling.preemption; },
        "while nobody gives way; drop --no-preemption");
  }
  options.has_effect_if(
      "--reject-priority-when-disabled", [by_priority] { return !by_priority(); },
      "while priorities are on; turn them off");
  for (const char* name : {"--fair-cost-input", "--fair-cost-output", "--fair-cost-cached"}) {
    options.has_effect_if(
        name, [&scheduling] { return scheduling.policy == "fair"; },
        "with this policy; use --policy fair");
  }
}

}  // namespace

void declare_scheduling_options(Options& options, SchedulingOptions& scheduling) {
  options.heading("Scheduling");
  options.value("--policy,--schedule-policy", &scheduling.policy,
                "Who is next: fcfs, lpm, dfs-weight, lof, random, routing-key, hrrn, "
                "shortest-prefill-first, fair, or priority");
  options.value("--conservativeness,--schedule-conservativeness", &scheduling.conservativeness,
                ranges::kPositive, "Scales what is set aside for tokens not yet drawn");
  options.flag("--mixed-batches,--enable-mixed-chunk,!--no-mixed-batches,!--disable-mixed-chunk",
               &scheduling.mixed_batches,
               "Prefill and decoding share steps (default); with no-: they take turns");
  options.flag("--overlap,!--no-overlap,!--disable-overlap-schedule", &scheduling.overlap,
               "Plan a step while one runs (default); with no-: one after the other");
  options.value("--prefills-per-decode,--decode-interleave", &scheduling.prefills_per_decode,
                ranges::kCountOrNone,
                "Without mixed batches: prefill steps between decode steps; 0: prefill first");
  options.value("--max-prefill-tokens", &scheduling.max_prefill_tokens, ranges::kCount,
                "New prompt tokens that may be admitted for one step");
  options.value("--target-itl-ms", &scheduling.target_itl_ms, ranges::kNotNegative,
                "Cut prompts so that running streams wait no longer for a token; 0: no target");
  options.value("--cache-aware-max-wait-secs", &scheduling.cache_aware_max_wait_seconds,
                ranges::kSeconds, "lpm, dfs-weight: requests that wait longer go first");

  options.heading("Priorities and fairness");
  options.flag("--enable-priority,--enable-priority-scheduling", &scheduling.enable_priority,
               "Serve urgent requests first (fcfs, lof and fair)");
  options.flag("--low-values-first,--schedule-low-priority-values-first",
               &scheduling.low_values_first, "Small priority values are the urgent ones");
  options.value("--default-priority,--default-priority-value", &scheduling.default_priority,
                "Of requests without one; default: the least urgent there is");
  options.flag("--reject-priority-when-disabled,--abort-on-priority-when-disabled",
               &scheduling.reject_priority_when_disabled,
               "Refuse requests with a priority while priorities are off; else it is ignored");
  options.flag("--preemption,!--no-preemption,!--disable-priority-preemption",
               &scheduling.preemption,
               "Running requests give way to more urgent ones (default); with no-: never");
  options.value("--preemption-threshold,--priority-scheduling-preemption-threshold",
                &scheduling.preemption_threshold, ranges::kCountOrNone, "By more than this");
  options.value("--max-preemptions", &scheduling.max_preemptions, ranges::kCountOrNone,
                "Of one request; then it is left alone");
  options.value("--preemption-min-run-secs", &scheduling.preemption_min_run_seconds,
                ranges::kSeconds, "A request runs at least so long before it gives way");
  options.value("--priority-aging-secs", &scheduling.aging_seconds, ranges::kSeconds,
                "A waiting request gains one class of urgency each; 0: never");
  options.value("--fair-cost-input", &scheduling.fair_cost_input, ranges::kNotNegative,
                "fair: what a prompt token costs its tenant");
  options.value("--fair-cost-output", &scheduling.fair_cost_output, ranges::kNotNegative,
                "fair: an output token");
  options.value("--fair-cost-cached", &scheduling.fair_cost_cached, ranges::kNotNegative,
                "fair: a prompt token from the cache");
  options.value("--tenant-max-running", &scheduling.tenant_max_running, ranges::kCountOrNone,
                "Requests of one tenant that run; 0: no limit");
  options.value("--tenant-max-queued", &scheduling.tenant_max_queued, ranges::kCountOrNone,
                "Requests of one tenant that wait; 0: no limit");

  options.heading("Limits");
  options.value("--max-queued-tokens", &scheduling.max_queued_tokens, ranges::kCountOrNone,
                "Prompt tokens that wait; 0: no limit");
  options.value("--queue-timeout-secs", &scheduling.queue_timeout_seconds, ranges::kSeconds,
                "Waiting longer ends a request; 0: never");
  options.value("--running-timeout-secs", &scheduling.running_timeout_seconds, ranges::kSeconds,
                "Running longer ends a request; 0: never");
  declare_what_has_effect(options, scheduling);
}

void declare_cache_options(Options& options, CacheOptions& cache) {
  options.heading("Prefix cache");
  options.flag("--prefix-cache,!--no-prefix-cache,!--disable-radix-cache", &cache.enabled,
               "Keep what was computed for prompts that begin alike (default)");
  options.choice("--state-snapshots,--state-checkpoints,--mamba-scheduler-strategy",
                 &cache.state_snapshots, {"multi", "extra_buffer", "no_buffer"},
                 "Which recurrent states are kept; no_buffer needs --page-size 1");
  options.value("--snapshot-interval,--checkpoint-interval,--mamba-track-interval",
                &cache.snapshot_interval, ranges::kCount,
                "Tokens between states kept while decoding; a multiple of 64");
  options.choice("--state-cache-dtype", &cache.state_dtype,
                 {"float32", "bfloat16", "int8", "fp32", "bf16"},
                 "How kept recurrent states are stored; less than float32 is no longer exact");
  options.choice("--eviction,--radix-eviction-policy", &cache.eviction, {"flops", "lru"},
                 "What goes first: what saves least work, or what was unused longest");
  for (const char* name :
       {"--state-snapshots", "--snapshot-interval", "--state-cache-dtype", "--eviction"}) {
    options.has_effect_if(
        name, [&cache] { return cache.enabled; },
        "without the prefix cache; drop --no-prefix-cache");
  }
}

}  // namespace heddle::tools
