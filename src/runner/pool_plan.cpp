// SPDX-License-Identifier: Apache-2.0
#include "runner/pool_plan.h"

#include <fmt/format.h>

#include "runner/pools.h"

namespace heddle::runner {

Result<PlannedPools> plan_pools(const EngineOptions& options, const checkpoint::ModelConfig& config,
                                const models::CacheNeeds& needs, DType kv_dtype,
                                int64_t available_bytes) {
  const int64_t longest = config.max_position_embeddings;
  if (options.context_length < 0 || options.context_length > longest) {
    return invalid_argument(fmt::format("context_length {} is not within 1 to the model's {}",
                                        options.context_length, longest));
  }
  PlannedPools pools;
  pools.kv = kv_layout(needs, options.page_size, kv_dtype);
  pools.state = state_layout(needs);
  HEDDLE_ASSIGN_OR_RETURN(pools.snapshot_dtype,
                          cache::parse_snapshot_dtype(options.cache.state_dtype));
  if (options.cache.enabled && pools.snapshot_dtype != DType::kF32) {
    pools.snapshot = snapshot_layout(needs, pools.snapshot_dtype);
  }
  // Repeats of a whole prompt go on from a state: without one there is nothing to keep a vector by.
  if (options.cache.enabled && needs.num_state_layers > 0) pools.hidden_width = config.hidden_size;
  HEDDLE_ASSIGN_OR_RETURN(
      pools.plan,
      cache::size_pools(
          {.bytes =
               static_cast<int64_t>(static_cast<double>(available_bytes) * options.memory_fraction),
           .kv = pools.kv,
           .state = pools.state,
           .snapshot = pools.snapshot,
           .context_length = options.context_length > 0 ? options.context_length : longest,
           .max_running_requests = options.max_running_requests,
           .max_total_tokens = options.max_total_tokens,
           .elastic = options.cache.enabled,
           .slot_extra_bytes = pools.hidden_bytes()}));
  pools.plan.sizes.kv_window = common_window(needs);
  pools.plan.sizes.keeps_hidden = pools.hidden_width > 0;
  return pools;
}

}  // namespace heddle::runner
