// SPDX-License-Identifier: Apache-2.0
#include "cache/pool_sizing.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "cache/page_allocator.h"
#include "core/check.h"
#include "ops/pool_ids.h"

namespace heddle::cache {
namespace {

// Ids are int32; no machine has memory for a pool of this many pages of one token.
constexpr int64_t kMaxPages = int64_t{1} << 30;
constexpr int64_t kMaxContext = int64_t{1} << 40;

double mebibytes(int64_t bytes) { return static_cast<double>(bytes) / (1024.0 * 1024.0); }

Status validate_pages(const PoolBudget& budget) {
  if (!valid_page_size(budget.page_size)) {
    return invalid_argument(
        fmt::format("page_size is {}; it must be a power of two from 1 to 128", budget.page_size));
  }
  const auto validate_groups = [&](const std::vector<KvLayout>& groups) -> Status {
    for (const KvLayout& group : groups) {
      HEDDLE_RETURN_IF_ERROR(group.validate());
      if (group.page_size == budget.page_size) continue;
      return invalid_argument(fmt::format("{} layers have pages of {}, the others pages of {}",
                                          group.num_layers, group.page_size, budget.page_size));
    }
    return {};
  };
  HEDDLE_RETURN_IF_ERROR(validate_groups(budget.kv));
  if (budget.sliding.size() >= ops::kMaxPageTables) {
    return invalid_argument(fmt::format("layers with {} widths of window; at most {}",
                                        budget.sliding.size(), ops::kMaxPageTables - 1));
  }
  int64_t narrower = 0;
  for (const SlidingLayers& layers : budget.sliding) {
    HEDDLE_RETURN_IF_ERROR(validate_groups(layers.kv));
    const int64_t count = num_layers(layers.kv), others = num_layers(budget.kv);
    if (layers.window <= narrower || count == 0 || others == 0) {
      return invalid_argument(fmt::format(
          "{} layers with a window of {} tokens after one of {} and beside {} others; both must be "
          "there, and the windows positive and ascending",
          count, layers.window, narrower, others));
    }
    narrower = layers.window;
  }
  return {};
}

Status validate_states(const PoolBudget& budget) {
  for (const auto* groups : {&budget.states, &budget.snapshots}) {
    for (const StateLayout& group : *groups) HEDDLE_RETURN_IF_ERROR(group.validate());
  }
  const int64_t layers = num_layers(budget.states), kept = num_layers(budget.snapshots);
  if (kept == 0 || (kept == layers && budget.elastic)) return {};
  return invalid_argument(fmt::format(
      "snapshots of {} layers beside states of {}; they must be the same, and be kept by a cache",
      kept, layers));
}

Status validate(const PoolBudget& budget) {
  HEDDLE_RETURN_IF_ERROR(validate_pages(budget));
  HEDDLE_RETURN_IF_ERROR(validate_states(budget));
  if (num_layers(budget.kv) == 0 && num_layers(budget.states) == 0) {
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
  if (budget.slot_extra_bytes < 0) {
    return invalid_argument(
        fmt::format("slot_extra_bytes is {}; it must be 0 or more", budget.slot_extra_bytes));
  }
  if (budget.slots_per_request < 1) {
    return invalid_argument(
        fmt::format("slots_per_request is {}; it must be at least 1", budget.slots_per_request));
  }
  return {};
}

// The quantities of the rules in pool_sizing.h.
struct Sizing {
  int64_t usable = 0;          // M of the rules, without the slots 0
  int64_t page_bytes = 0;      // k of the rules: bytes of a page; 0 without KV
  int64_t state_bytes = 0;     // s of the rules: bytes of a state; 0 without state
  int64_t snapshot_bytes = 0;  // f; 0: snapshots use the states' slots
  int64_t states_per_request = 0;
  int64_t asked_requests = 0;
  int64_t fixed_pages = 0;    // pages for max_total_tokens; 0: not fixed
  int64_t context_pages = 0;  // pages of one full context

  [[nodiscard]] int64_t bytes_per_request() const { return states_per_request * state_bytes; }

  // Least bytes of states and snapshots with which one request can run.
  [[nodiscard]] int64_t least_state_bytes() const { return bytes_per_request() + snapshot_bytes; }

  // Whether pages and states share memory (rule 7).
  [[nodiscard]] bool shares(const PoolBudget& budget) const {
    return page_bytes > 0 && state_bytes > 0 && fixed_pages == 0 &&
           budget.release_granule_bytes > 0 &&
           least_bytes_together(budget.kv) >= budget.release_granule_bytes;
  }

  [[nodiscard]] int64_t share_of_states(const PoolBudget& budget) const {
    return split_by_share(usable, state_bytes, budget.token_bytes(), budget.page_size,
                          budget.state_share)
        .num_states;
  }

  // Number of states: `wanted`, or fewer if KV would get less than its minimum.
  [[nodiscard]] int64_t states_beside_kv(int64_t wanted) const {
    const int64_t kv_first = std::max(fixed_pages, int64_t{page_bytes > 0}) * page_bytes;
    return std::max(std::min(wanted, (usable - kv_first) / state_bytes), states_per_request);
  }

  [[nodiscard]] int64_t pages_beside_states(int64_t states) const {
    return fixed_pages > 0 ? fixed_pages : (usable - states * state_bytes) / page_bytes;
  }
};

// Rules 1 to 6, for a pool that holds running requests only.
PoolSizes plan_for_running(const PoolBudget& budget, const Sizing& sizing) {
  PoolSizes sizes;
  if (sizing.state_bytes > 0) {
    int64_t wanted = sizing.asked_requests * budget.slots_per_request;
    if (budget.max_running_requests == 0 && sizing.page_bytes > 0) {
      wanted = std::min(wanted, sizing.share_of_states(budget));
    }
    sizes.num_state_slots = sizing.states_beside_kv(wanted);
  }
  sizes.num_pages = sizing.page_bytes > 0
                        ? sizing.pages_beside_states(sizes.num_state_slots)
                        : kMaxPages;  // a page costs no bytes, so only requests limit their number
  int64_t requests = std::min(sizing.asked_requests, sizes.num_pages);
  if (sizing.states_per_request > 0) {
    requests = std::min(requests, sizes.num_state_slots / sizing.states_per_request);
  }
  sizes.max_sequences = static_cast<int32_t>(requests);
  if (sizing.fixed_pages == 0 && (budget.limit_to_running || sizing.page_bytes == 0)) {
    sizes.num_pages = std::min(sizes.num_pages, requests * sizing.context_pages);
  }
  sizes.num_pages = std::min(sizes.num_pages, kMaxPages);
  return sizes;
}

// Rule 7 for states that share their slots with snapshots.
void plan_states(const PoolBudget& budget, const Sizing& sizing, PoolSizes& sizes) {
  if (sizing.state_bytes == 0) return;
  int64_t wanted = kMaxElasticSlots;
  if (sizing.page_bytes > 0 && !sizing.shares(budget) && sizing.fixed_pages == 0) {
    wanted = std::max(sizing.share_of_states(budget),
                      budget.max_running_requests * sizing.states_per_request);
  }
  sizes.num_state_slots = std::min(sizing.states_beside_kv(wanted), kMaxElasticSlots);
}

// Rule 8: snapshots in slots of their own.
void plan_snapshots(const PoolBudget& budget, const Sizing& sizing, PoolSizes& sizes) {
  const int64_t most =
      sizing.usable -
      std::max(sizing.fixed_pages, int64_t{sizing.page_bytes > 0}) * sizing.page_bytes;
  int64_t bytes = most;  // bytes for states and snapshots together
  int64_t requests = sizing.asked_requests;
  if (sizing.shares(budget)) {
    requests = std::min(requests, sizing.usable / (sizing.bytes_per_request() + sizing.page_bytes));
    bytes -= sizing.bytes_per_request();
  } else {
    if (sizing.page_bytes > 0 && sizing.fixed_pages == 0) {
      const int64_t asked =
          budget.max_running_requests * sizing.bytes_per_request() + sizing.snapshot_bytes;
      const int64_t share = sizing.share_of_states(budget) * sizing.state_bytes;
      bytes = std::min(most, std::max({share, asked, sizing.least_state_bytes()}));
    }
    const int64_t for_requests =
        budget.max_running_requests > 0 ? bytes : std::max(bytes / 2, sizing.least_state_bytes());
    requests =
        std::min(requests, (for_requests - sizing.snapshot_bytes) / sizing.bytes_per_request());
    bytes -= requests * sizing.bytes_per_request();
  }
  sizes.num_state_slots = requests * sizing.states_per_request;
  sizes.num_snapshot_slots = std::min(bytes / sizing.snapshot_bytes, kMaxElasticSlots);
}

// Rules 7 and 8, for a pool with a cache.
PoolSizes plan_for_cache(const PoolBudget& budget, const Sizing& sizing) {
  PoolSizes sizes;
  const bool shared = sizing.shares(budget);
  if (sizing.snapshot_bytes > 0) {
    plan_snapshots(budget, sizing, sizes);
  } else {
    plan_states(budget, sizing, sizes);
  }
  const int64_t most_pages =
      std::max({kMaxElasticPages, sizing.fixed_pages, std::min(sizing.context_pages, kMaxPages)});
  if (sizing.page_bytes == 0) {
    const int64_t sequences = sizes.num_state_slots + sizes.num_snapshot_slots;
    sizes.num_pages = std::min(most_pages / sequences, sizing.context_pages) * sequences;
  } else if (sizing.fixed_pages > 0) {
    sizes.num_pages = sizing.fixed_pages;
  } else {
    const int64_t state_bytes = shared ? sizing.bytes_per_request()
                                       : sizes.num_state_slots * sizing.state_bytes +
                                             sizes.num_snapshot_slots * sizing.snapshot_bytes;
    sizes.num_pages = std::min(most_pages, (sizing.usable - state_bytes) / sizing.page_bytes);
  }
  int64_t requests = std::min(sizing.asked_requests, sizes.num_pages);
  if (sizing.states_per_request > 0) {
    requests = std::min(requests, sizes.num_state_slots / sizing.states_per_request);
  }
  if (shared) {
    sizes.shared_bytes = sizing.usable;
    requests = std::min(requests, sizing.usable / (sizing.bytes_per_request() + sizing.page_bytes));
  }
  sizes.max_sequences = static_cast<int32_t>(requests);
  return sizes;
}

// Rule 9: sizes of one page table with a window.
PageWindow plan_window(const PoolBudget& budget, const SlidingLayers& layers) {
  const auto sizes_of = [](const SlidingLayers& sliding) {
    return PageWindow{.page_bytes = bytes_per_page(sliding.kv), .window = sliding.window};
  };
  PageWindow sizes = sizes_of(layers);
  const PageAllocator pages_of(0, budget.page_size);
  const int64_t pages_each = sizes.per_sequence(budget.page_size);
  const int64_t requests =
      budget.max_running_requests > 0 ? budget.max_running_requests : kDefaultMaxRunning;
  int64_t wanted = requests * pages_each + 2 * pages_of.pages_for(budget.chunk_tokens);
  if (budget.elastic) {
    const int64_t typical = pages_of.pages_for(std::min(budget.context_length, kTypicalTokens));
    const auto in_window = static_cast<double>(pages_each * sizes.page_bytes);
    auto in_all = static_cast<double>(typical * budget.page_bytes());
    for (const SlidingLayers& sliding : budget.sliding) {
      const PageWindow one = sizes_of(sliding);
      in_all += static_cast<double>(one.per_sequence(budget.page_size) * one.page_bytes);
    }
    const double pages =
        budget.max_total_tokens > 0
            ? static_cast<double>(pages_of.pages_for(budget.max_total_tokens) * pages_each) /
                  static_cast<double>(typical)
            : static_cast<double>(budget.bytes) * (in_window / in_all) /
                  static_cast<double>(sizes.page_bytes);
    wanted = std::max(wanted, static_cast<int64_t>(std::min(pages, 1e15)));
  }
  const int64_t most_bytes = budget.bytes / 2 / std::ssize(budget.sliding);
  const int64_t most = std::min(most_bytes / sizes.page_bytes, kMaxElasticPages);
  sizes.num_pages = std::max(std::min(wanted, most), pages_each);
  return sizes;
}

// How many requests can always advance while half of the table's pages, or two chunks, are left for
// prompts.
int32_t requests_with_window(const PoolBudget& budget, const PageWindow& sizes) {
  const PageAllocator pages_of(0, budget.page_size);
  const int64_t chunks = 2 * pages_of.pages_for(budget.chunk_tokens);
  const int64_t reserve = sizes.num_pages - std::min(chunks, sizes.num_pages / 2);
  const int64_t requests = reserve / sizes.per_sequence(budget.page_size);
  return static_cast<int32_t>(std::clamp<int64_t>(requests, 1, kMaxRunningLimit));
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
  if (!budget.sliding.empty()) {
    std::vector<PageWindow> windows;
    PoolBudget rest = budget;
    rest.sliding = {};
    for (const SlidingLayers& layers : budget.sliding) {
      const PageWindow& window = windows.emplace_back(plan_window(budget, layers));
      rest.bytes -= (window.num_pages + 1) * window.page_bytes;
    }
    HEDDLE_ASSIGN_OR_RETURN(PoolPlan plan, size_pools(rest));
    for (const PageWindow& window : windows) {
      plan.sizes.max_sequences =
          std::min(plan.sizes.max_sequences, requests_with_window(budget, window));
    }
    plan.sizes.windows = std::move(windows);
    return plan;
  }
  Sizing sizing;
  sizing.page_bytes = budget.page_bytes();
  if (num_layers(budget.states) > 0) {
    sizing.state_bytes = bytes_per_slot(budget.states);
    sizing.snapshot_bytes = bytes_per_slot(budget.snapshots);
    (sizing.snapshot_bytes > 0 ? sizing.snapshot_bytes : sizing.state_bytes) +=
        budget.slot_extra_bytes;
    sizing.states_per_request = budget.slots_per_request;
  }
  sizing.asked_requests =
      budget.max_running_requests > 0 ? budget.max_running_requests : budget.default_max_running;

  // Page 0 and slot 0 of each pool are part of the mapping.
  const int64_t sinks = sizing.page_bytes + sizing.state_bytes + sizing.snapshot_bytes;
  sizing.usable = budget.bytes - sinks;
  const int64_t least = sizing.page_bytes + sizing.least_state_bytes();
  if (sizing.usable < least) {
    return resource_exhausted(fmt::format(
        "one request needs {:.1f} MiB of pools, {:.1f} MiB are left beside the weights; raise "
        "memory_fraction, or choose a smaller dtype or model",
        mebibytes(least + sinks), mebibytes(std::max<int64_t>(budget.bytes, 0))));
  }

  const PageAllocator pages_of(0, budget.page_size);
  sizing.context_pages = pages_of.pages_for(budget.context_length);
  if (sizing.page_bytes > 0 && budget.max_total_tokens > 0) {
    if (budget.max_total_tokens > kMaxPages ||
        pages_of.pages_for(budget.max_total_tokens) >
            (sizing.usable - sizing.least_state_bytes()) / sizing.page_bytes) {
      return resource_exhausted(fmt::format(
          "max_total_tokens = {} needs {:.1f} MiB of KV, {:.1f} MiB are left; lower it or raise "
          "memory_fraction",
          budget.max_total_tokens,
          mebibytes(budget.token_bytes()) * static_cast<double>(budget.max_total_tokens),
          mebibytes(sizing.usable - sizing.least_state_bytes())));
    }
    sizing.fixed_pages = pages_of.pages_for(budget.max_total_tokens);
  }

  PoolPlan plan{.sizes = budget.elastic ? plan_for_cache(budget, sizing)
                                        : plan_for_running(budget, sizing)};
  plan.sizes.page_size = budget.page_size;
  plan.sizes.page_bytes = sizing.page_bytes;
  plan.sizes.state_slot_bytes = sizing.state_bytes;
  plan.sizes.snapshot_slot_bytes = sizing.snapshot_bytes;
  plan.context_length = std::min(budget.context_length, plan.sizes.kv_tokens());
  return plan;
}

}  // namespace heddle::cache
