// SPDX-License-Identifier: Apache-2.0
#include "cache/pool_sizing.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "cache/page_allocator.h"
#include "core/check.h"

namespace heddle::cache {
namespace {

// Ids are int32; a pool of this many pages of one token is beyond any machine's use.
constexpr int64_t kMaxPages = int64_t{1} << 30;
constexpr int64_t kMaxContext = int64_t{1} << 40;

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

Status validate(const PoolBudget& budget) {
  HEDDLE_RETURN_IF_ERROR(budget.kv.validate());
  HEDDLE_RETURN_IF_ERROR(budget.state.validate());
  if (budget.kv.num_layers == 0 && budget.state.num_layers == 0) {
    return invalid_argument("the model has neither KV nor recurrent state; nothing can be pooled");
  }
  if (budget.context_length < 1 || budget.context_length > kMaxContext) {
    return invalid_argument(
        fmt::format("context_length is {}; it must be at least 1", budget.context_length));
  }
  if (budget.max_running_requests < 0 || budget.max_running_requests > kMaxRunningLimit) {
    return invalid_argument(
        fmt::format("max_running_requests is {}; it must be from 0 (automatic) to {}",
                    budget.max_running_requests, kMaxRunningLimit));
  }
  if (budget.max_total_tokens < 0) {
    return invalid_argument(fmt::format("max_total_tokens is {}; it must be 0 (automatic) or more",
                                        budget.max_total_tokens));
  }
  if (!(budget.state_share >= 0) || !std::isfinite(budget.state_share)) {
    return invalid_argument(fmt::format("state_share is {}; it must be a finite number, 0 or more",
                                        budget.state_share));
  }
  if (budget.slots_per_request < 1) {
    return invalid_argument(
        fmt::format("slots_per_request is {}; it must be at least 1", budget.slots_per_request));
  }
  return {};
}

}  // namespace

PoolSplit split_by_share(int64_t bytes, int64_t state_bytes, int64_t kv_bytes_per_token,
                         int32_t page_size, double state_share) {
  HEDDLE_CHECK(bytes >= 0 && state_bytes > 0 && kv_bytes_per_token > 0 && page_size > 0);
  const double share = state_share / (1 + state_share);
  const double states = static_cast<double>(bytes) * share / static_cast<double>(state_bytes);
  PoolSplit split;
  split.num_states = static_cast<int64_t>(states);
  split.kv_tokens = (bytes - split.num_states * state_bytes) / kv_bytes_per_token;
  split.kv_tokens -= split.kv_tokens % page_size;
  return split;
}

Result<PoolPlan> size_pools(const PoolBudget& budget) {
  HEDDLE_RETURN_IF_ERROR(validate(budget));
  const int64_t page_bytes = budget.kv.bytes_per_page();      // k; 0 without KV
  const int64_t state_bytes = budget.state.bytes_per_slot();  // s; 0 without state
  const int64_t row_states = state_bytes > 0 ? budget.slots_per_request : 0;
  const int32_t asked_rows =
      budget.max_running_requests > 0 ? budget.max_running_requests : kDefaultMaxRunning;

  // Slot 0 of each pool is part of the mapping.
  const int64_t usable = budget.bytes - page_bytes - state_bytes;
  const int64_t least = page_bytes + row_states * state_bytes;
  if (usable < least) {
    return resource_exhausted(fmt::format(
        "one request needs {:.1f} MiB of pools, {:.1f} MiB are left beside the weights; raise "
        "memory_fraction, or choose a smaller dtype or model",
        mebibytes(least + page_bytes + state_bytes),
        mebibytes(std::max<int64_t>(budget.bytes, 0))));
  }

  const PageAllocator pages_of(0, budget.kv.page_size);
  int64_t fixed_pages = 0;
  if (page_bytes > 0 && budget.max_total_tokens > 0) {
    if (budget.max_total_tokens > kMaxPages ||
        pages_of.pages_for(budget.max_total_tokens) >
            (usable - row_states * state_bytes) / page_bytes) {
      return resource_exhausted(fmt::format(
          "max_total_tokens = {} needs {:.1f} MiB of KV, {:.1f} MiB are left; lower it or raise "
          "memory_fraction",
          budget.max_total_tokens,
          mebibytes(budget.kv.bytes_per_token()) * static_cast<double>(budget.max_total_tokens),
          mebibytes(usable - row_states * state_bytes)));
    }
    fixed_pages = pages_of.pages_for(budget.max_total_tokens);
  }

  PoolPlan plan;
  if (state_bytes > 0) {
    const int64_t wanted = int64_t{asked_rows} * budget.slots_per_request;
    int64_t states = wanted;
    if (budget.max_running_requests == 0 && page_bytes > 0) {
      states = std::min(states, split_by_share(usable, state_bytes, budget.kv.bytes_per_token(),
                                               budget.kv.page_size, budget.state_share)
                                    .num_states);
    }
    const int64_t kv_first = std::max(fixed_pages, int64_t{page_bytes > 0}) * page_bytes;
    states = std::min(states, (usable - kv_first) / state_bytes);
    plan.num_state_slots = std::max(states, row_states);
  }

  if (page_bytes > 0) {
    plan.num_pages = (usable - plan.num_state_slots * state_bytes) / page_bytes;
    if (fixed_pages > 0) plan.num_pages = fixed_pages;
  } else {
    plan.num_pages = kMaxPages;  // pages cost nothing: only rows are limited
  }

  int64_t rows = asked_rows;
  if (row_states > 0) rows = std::min(rows, plan.num_state_slots / row_states);
  rows = std::min(rows, plan.num_pages);
  plan.max_running_requests = static_cast<int32_t>(rows);

  if (fixed_pages == 0 && (budget.limit_to_running || page_bytes == 0)) {
    plan.num_pages = std::min(plan.num_pages, rows * pages_of.pages_for(budget.context_length));
  }
  plan.num_pages = std::min(plan.num_pages, kMaxPages);
  plan.context_length = std::min(budget.context_length, plan.num_pages * budget.kv.page_size);
  plan.kv_pool_bytes = page_bytes > 0 ? (plan.num_pages + 1) * page_bytes : 0;
  plan.state_pool_bytes = state_bytes > 0 ? (plan.num_state_slots + 1) * state_bytes : 0;
  return plan;
}

}  // namespace heddle::cache
