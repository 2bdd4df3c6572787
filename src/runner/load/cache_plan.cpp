// SPDX-License-Identifier: Apache-2.0
#include "runner/load/cache_plan.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "runner/step/pools.h"
#include "speculative/draft_limits.h"

namespace heddle::runner {

namespace {

constexpr double kMostDraftShare = 0.05;  // largest share of the pools' memory for states of
                                          // drafts, if more than those of one sequence
constexpr double kMostForcedShare =
    0.01;  // the same for states of forced tokens, without a drafter

// Most rows of drafts that a step may verify, limited by the share of memory for their states.
Result<int64_t> plan_draft_rows(const EngineOptions& options, int64_t state_bytes,
                                bool has_own_snapshots, int64_t bytes) {
  const int64_t most = speculative::max_draft_rows(options.speculative);
  if (state_bytes == 0) return most;
  const bool has_drafts = speculative::num_draft_tokens(options.speculative) > 0;
  if (has_own_snapshots) {
    if (!has_drafts) return 0;
    return invalid_argument(
        fmt::format("speculation needs kept states in float32; state_dtype is \"{}\"",
                    to_string(options.cache.state_dtype)));
  }
  const double share = has_drafts ? kMostDraftShare : kMostForcedShare;
  const auto affordable =
      static_cast<int64_t>(static_cast<double>(bytes) * share / static_cast<double>(state_bytes));
  // Fewer than 2 rows, a token and a draft, are of no use.
  if (!has_drafts) return affordable < 2 ? 0 : std::min(affordable, most);
  return std::clamp<int64_t>(affordable, speculative::num_draft_tokens(options.speculative), most);
}

// Least bytes of the pools of a small model: two whole contexts, or the requests asked for with
// kTypicalTokens tokens and two states each.
double wanted_pool_bytes(const cache::PoolBudget& budget, int64_t page_bytes) {
  const auto token_bytes = static_cast<double>(page_bytes) / budget.page_size;
  const auto state_bytes = static_cast<double>(cache::bytes_per_slot(budget.states));
  return std::max(2 * token_bytes * static_cast<double>(budget.context_length),
                  budget.max_running_requests *
                      (token_bytes * static_cast<double>(cache::kTypicalTokens) + 2 * state_bytes));
}

// Bytes of memory that become pools.
Result<int64_t> plan_bytes(const EngineOptions& options, const PoolMemory& memory,
                           double wanted_bytes) {
  if (!options.static_memory_fraction) {
    const double share = options.memory_fraction.value_or(memory.defaults.memory_fraction);
    const auto bytes = static_cast<int64_t>(static_cast<double>(memory.available_bytes) * share);
    const int64_t per_weight = memory.defaults.pool_bytes_per_weight_byte;
    if (options.memory_fraction || options.max_total_tokens > 0 || per_weight == 0) return bytes;
    const double limit =
        std::max({static_cast<double>(kLeastPoolLimit),
                  static_cast<double>(per_weight) * static_cast<double>(memory.weights_bytes),
                  wanted_bytes});
    return limit < static_cast<double>(bytes) ? static_cast<int64_t>(limit) : bytes;
  }
  const auto together = static_cast<int64_t>(static_cast<double>(memory.total_bytes) *
                                             *options.static_memory_fraction);
  const int64_t bytes = together - memory.weights_bytes;
  if (bytes > 0 && bytes <= memory.available_bytes) return bytes;
  return resource_exhausted(fmt::format(
      "static_memory_fraction {} of {} MiB is {} MiB for weights and pools; the weights take {} "
      "MiB, and {} MiB are free beside them; {} static_memory_fraction",
      *options.static_memory_fraction, memory.total_bytes >> 20, together >> 20,
      memory.weights_bytes >> 20, memory.available_bytes >> 20, bytes > 0 ? "lower" : "raise"));
}

// Bytes of a standalone draft model's states for all sequences that may run.
Result<int64_t> plan_drafter_states(const EngineOptions& options, const PoolMemory& memory,
                                    int64_t bytes) {
  const int32_t max_running = options.max_running_requests > 0
                                  ? options.max_running_requests
                                  : memory.defaults.max_running_requests;
  const int64_t states = drafter_state_bytes(*memory.draft_needs, max_running);
  if (2 * states <= bytes) return states;
  return resource_exhausted(
      fmt::format("the recurrent states of the model that drafts take {} MiB for {} sequences, the "
                  "pools have {} MiB; lower max_running_requests or raise memory_fraction",
                  states >> 20, max_running, bytes >> 20));
}

}  // namespace

int64_t drafter_state_bytes(const models::CacheNeeds& needs, int64_t max_sequences) {
  if (needs.state_layers.empty()) return 0;
  const int64_t slots =
      1 + max_sequences + speculative::num_guess_states(max_sequences);  // 1 for slot 0
  return slots * cache::bytes_per_slot(state_layouts(needs));
}

Result<PlannedPools> plan_pools(const EngineOptions& options, const checkpoint::ModelConfig& config,
                                const models::CacheNeeds& needs, DType kv_dtype,
                                const PoolMemory& memory) {
  const int64_t longest = config.max_position_embeddings;
  if (options.context_length < 0 || options.context_length > longest) {
    return invalid_argument(fmt::format("context_length {} is not within 1 to the model's {}",
                                        options.context_length, longest));
  }
  PlannedPools pools;
  const int64_t context = options.context_length > 0 ? options.context_length : longest;
  cache::PoolBudget budget{.page_size = options.page_size,
                           .chunk_tokens = options.chunked_prefill_tokens.value_or(
                               memory.defaults.chunked_prefill_tokens),
                           .states = state_layouts(needs),
                           .context_length = context,
                           .max_running_requests = options.max_running_requests,
                           .default_max_running = memory.defaults.max_running_requests,
                           .max_total_tokens = options.max_total_tokens,
                           .elastic = options.cache.enabled,
                           .release_granule_bytes = memory.release_granule_bytes};
  const std::vector<cache::KvLayout> pages = kv_layouts(needs, options.page_size, kv_dtype);
  for (const int64_t window : windows_of_tables(needs, context)) {
    budget.sliding.push_back({.window = window, .kv = {}});
  }
  for (size_t group = 0; group < pages.size(); ++group) {
    const int64_t window = needs.page_groups[group].window;
    const auto table =
        std::ranges::lower_bound(budget.sliding, window, {}, &cache::SlidingLayers::window);
    const bool slides = window > 0 && table != budget.sliding.end();
    (slides ? table->kv : budget.kv).push_back(pages[group]);
  }
  if (memory.draft_needs) {
    std::ranges::copy(kv_layouts(*memory.draft_needs, options.page_size, kv_dtype),
                      std::back_inserter(budget.kv));
  }
  pools.snapshot_dtype = cache::snapshot_dtype(options.cache.state_dtype);
  if (options.cache.enabled && pools.snapshot_dtype != DType::kF32) {
    budget.snapshots = snapshot_layouts(needs, pools.snapshot_dtype);
  }
  // A repeated whole prompt resumes from a state; without states no hidden vector can be stored.
  if (options.cache.enabled && !needs.state_layers.empty()) pools.hidden_width = config.hidden_size;
  HEDDLE_ASSIGN_OR_RETURN(
      int64_t bytes,
      plan_bytes(options, memory, wanted_pool_bytes(budget, cache::bytes_per_page(pages))));
  const int64_t state_bytes = cache::bytes_per_slot(budget.states);
  HEDDLE_ASSIGN_OR_RETURN(const int64_t draft_rows,
                          plan_draft_rows(options, state_bytes, !budget.snapshots.empty(), bytes));
  bytes -= draft_rows * state_bytes;
  const bool reads_texts = options.speculative.algorithm == DraftAlgorithm::kStandalone;
  if (reads_texts && memory.draft_needs) {
    HEDDLE_ASSIGN_OR_RETURN(const int64_t states, plan_drafter_states(options, memory, bytes));
    bytes -= states;
  }
  budget.bytes = bytes;
  budget.slot_extra_bytes = bytes_of(memory.hidden_dtype, pools.hidden_width);
  HEDDLE_ASSIGN_OR_RETURN(pools.plan, cache::size_pools(budget));
  // A draft network reads all tokens of a sequence.
  pools.plan.sizes.kv_window = memory.draft_needs ? 0 : common_window(needs);
  pools.plan.sizes.keeps_hidden = pools.hidden_width > 0;
  pools.limits.max_draft_rows = draft_rows;
  if (memory.draft_needs) {
    pools.limits.max_made_drafts = speculative::num_draft_tokens(options.speculative) - 1;
    pools.limits.draft_topk = options.speculative.eagle_topk;
    pools.limits.draft_steps = options.speculative.num_steps;
    pools.limits.drafter_reads_texts = reads_texts;
  }
  return pools;
}

}  // namespace heddle::runner
