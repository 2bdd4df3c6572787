// SPDX-License-Identifier: Apache-2.0
#include "engine/scheduler_setup.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "core/log.h"
#include "core/metrics.h"
#include "engine/engine_metrics.h"
#include "runner/load/cache_plan.h"
#include "scheduler/queue_policy.h"
#include "speculative/draft_limits.h"

namespace heddle::engine {
namespace {

// Smallest grid of state snapshots, in tokens: a multiple of the delta rule's chunks.
constexpr int64_t kMinGrid = 64;
constexpr int32_t kMaxQueuedRequests = 1 << 20;
constexpr int32_t kMaxAdapterSlots = 1024;
constexpr int32_t kMaxAdapterRank = 4096;

Status check_speculation(const SpeculativeOptions& options) {
  const bool needs_folder = options.algorithm == DraftAlgorithm::kEagle ||
                            options.algorithm == DraftAlgorithm::kEagle3 ||
                            options.algorithm == DraftAlgorithm::kStandalone;
  const bool takes_folder = needs_folder || options.algorithm == DraftAlgorithm::kMtp;
  if (needs_folder && options.draft_model_dir.empty()) {
    return invalid_argument(
        fmt::format("speculative.draft_model_dir is empty; {} needs the folder of what drafts, and "
                    "mtp drafts with the prediction head of a checkpoint",
                    to_string(options.algorithm)));
  }
  if (!takes_folder && !options.draft_model_dir.empty()) {
    return invalid_argument(
        fmt::format("speculative.draft_model_dir is \"{}\", which {} does not read; name what it "
                    "holds: mtp for a prediction head, eagle or eagle3 for such a network, "
                    "standalone for a small model",
                    options.draft_model_dir.string(), to_string(options.algorithm)));
  }
  if (const double mean = options.simulated_acceptance;
      mean != 0 && !(mean >= 1 && mean <= speculative::kMostDraftRows)) {
    return invalid_argument(
        fmt::format("speculative.simulated_acceptance is {}; it must be 0 or from 1 to {}", mean,
                    speculative::kMostDraftRows));
  }
  if (options.simulated_acceptance != 0 && options.eagle_topk > 1) {
    return invalid_argument(
        fmt::format("speculative.simulated_acceptance is {} with eagle_topk {}; it is for chains, "
                    "eagle_topk 1",
                    options.simulated_acceptance, options.eagle_topk));
  }
  if (options.num_steps == 0) return {};
  if (options.num_steps < 0 || options.num_steps >= speculative::kMostDraftRows) {
    return invalid_argument(fmt::format("speculative.num_steps is {}; it must be from 1 to {}",
                                        options.num_steps, speculative::kMostDraftRows - 1));
  }
  if (options.algorithm == DraftAlgorithm::kNgram) {
    return invalid_argument(fmt::format(
        "speculative.num_steps is {}; ngram takes no steps: num_draft_tokens {} is as many drafts",
        options.num_steps, options.num_steps + 1));
  }
  if (options.eagle_topk == 1 && options.num_draft_tokens != 0 &&
      options.num_draft_tokens != options.num_steps + 1) {
    log_warning(fmt::format(
        "num_draft_tokens {} becomes {}: {} steps make a chain of {} drafts behind the next token",
        options.num_draft_tokens, options.num_steps + 1, options.num_steps, options.num_steps));
  }
  return {};
}

}  // namespace

Result<scheduler::BatchSchedulerOptions> scheduler_options(const EngineOptions& options,
                                                           const runner::PoolSizes& sizes,
                                                           const request::StepLimits& limits) {
  scheduler::BatchSchedulerOptions wanted;
  wanted.scheduling = options.scheduling;
  wanted.max_running = sizes.max_sequences;
  wanted.limits = limits;
  wanted.chunked_prefill_tokens =
      options.chunked_prefill_tokens.value_or(wanted.chunked_prefill_tokens);
  wanted.random_seed = options.random_seed;
  // Without priorities a full queue refuses the arriving request, and the inbox does that itself.
  wanted.max_queued = options.scheduling.enable_priority ? options.max_queued_requests
                                                         : std::numeric_limits<int32_t>::max();

  wanted.max_drafts = std::max(speculative::num_draft_tokens(options.speculative) - 1, 0);
  wanted.adapts_drafts = options.speculative.adapts();

  const CacheOptions& cache = options.cache;
  cache::PrefixCacheOptions& kept = wanted.cache;
  kept.pools = sizes;
  kept.enabled = cache.enabled;
  kept.grid = std::max<int64_t>(kMinGrid, sizes.page_size);
  kept.decode_interval = cache.snapshot_interval;
  kept.policy = cache.state_snapshots;
  if (kept.policy == SnapshotPolicy::kNoBuffer && sizes.page_size != 1) {
    return invalid_argument(
        fmt::format("state_snapshots no_buffer needs page_size 1; it is {}", sizes.page_size));
  }
  if (kept.decode_interval < kept.grid || kept.decode_interval % kept.grid != 0) {
    return invalid_argument(fmt::format("snapshot_interval is {}; it must be a multiple of {}",
                                        kept.decode_interval, kept.grid));
  }
  kept.eviction = cache.eviction;
  return wanted;
}

Status check_options(const EngineOptions& options) {
  if (options.model_dir.empty())
    return invalid_argument("model_dir is empty; name a model's folder");
  if (options.max_queued_requests < 1 || options.max_queued_requests > kMaxQueuedRequests) {
    return invalid_argument(fmt::format("max_queued_requests is {}; it must be from 1 to {}",
                                        options.max_queued_requests, kMaxQueuedRequests));
  }
  if (!(options.watchdog_seconds >= 0)) {
    return invalid_argument(
        fmt::format("watchdog_seconds is {}; it must be 0 or more", options.watchdog_seconds));
  }
  const AdapterOptions& adapters = options.adapters;
  if (adapters.num_slots < 0 || adapters.num_slots > kMaxAdapterSlots || adapters.max_rank < 1 ||
      adapters.max_rank > kMaxAdapterRank) {
    return invalid_argument(fmt::format(
        "adapters.num_slots is {} and adapters.max_rank {}; they must be from 0 to {} and from 1 "
        "to {}",
        adapters.num_slots, adapters.max_rank, kMaxAdapterSlots, kMaxAdapterRank));
  }
  HEDDLE_RETURN_IF_ERROR(check_metrics_options(options.metrics));
  HEDDLE_RETURN_IF_ERROR(check_speculation(options.speculative));
  HEDDLE_RETURN_IF_ERROR(
      scheduler::choose_queue_policy(options.scheduling, options.cache.enabled).status());
  return scheduler_options(options, {.page_size = options.page_size}, {}).status();
}

Status check_metrics_options(const MetricsOptions& options) {
  if (options.max_tenants < 0 || options.max_tenants > kMaxMetricTenants) {
    return invalid_argument(fmt::format("metrics.max_tenants is {}; it must be from 0 to {}",
                                        options.max_tenants, kMaxMetricTenants));
  }
  return {};
}

Status settle_policy(EngineOptions& options) {
  HEDDLE_ASSIGN_OR_RETURN(
      const scheduler::QueuePolicyChoice choice,
      scheduler::choose_queue_policy(options.scheduling, options.cache.enabled));
  options.scheduling.policy = choice.policy;
  options.scheduling.enable_priority = choice.by_priority;
  return ok_status();
}

}  // namespace heddle::engine
