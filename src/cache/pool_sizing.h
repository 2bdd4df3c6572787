// SPDX-License-Identifier: Apache-2.0
// size_pools: from a memory budget to the number of KV pages, state slots and snapshot slots. A
// pure function, so that every rule below is a unit test.
//
// The rules, in this order; M is the budget for all pools, s the bytes of a state, k those of a
// page:
//   1. Models without state give all of M to KV; models without KV give all of M to states.
//   2. A fixed max_running_requests asks for max_running * slots_per_request states. Otherwise they
//      take the share r / (1 + r) of M, r = state_share, and at most those of
//      default_max_running requests.
//   3. A fixed max_total_tokens is served before the states. Otherwise KV takes what they leave.
//   4. Where rule 2 leaves KV less than one page, states give way, down to those of one request.
//   5. KV stops at max_running * context_length tokens while nothing is cached beyond running
//      requests.
//   6. max_running = min(asked for or default_max_running, states / slots_per_request, pages).
//   7. `elastic` replaces 2 and 5: the cache fills all of the memory, and its split into pages and
//      states moves with the load. Each pool gets as many ids as fit when the other holds next to
//      nothing: pages beside one request's states, states beside one page. All ids together exceed
//      M; MemoryBudget keeps what is in use within shared_bytes. The mappings commit memory as it
//      is touched, so more ids cost address space only, at most 2 M. Requests share M too:
//      max_running * (slots_per_request * s + k) <= M.
//      Nothing is shared, and shared_bytes is 0, for models with one kind of memory, with a fixed
//      max_total_tokens (states take the rest), where memory does not go back, and where a layer's
//      part of a page is less than the pieces that it goes back in, release_granule_bytes (states
//      take their share of rule 2, however many they are).
//   8. Snapshots of another format have slots of their own, of f bytes with what is kept beside
//      them, and state slots are then for running requests only. Where memory is shared, snapshot
//      slots are as many as fit beside one request's states and one page. Where it is not, requests
//      take at most half of what states have, unless max_running_requests asks for more, and
//      snapshots the rest. One snapshot fits always. Only with `elastic`: without a cache there
//      are none.
//   9. Where some layers slide and others do not, the sliding ones have page tables of their own,
//   one
//      for each width of window, whose memory is set aside first; rules 1 to 8 share the rest. Of
//      the memory for KV a table gets what a sequence of kTypicalTokens has of it there, its
//      window, and at least what all requests need to advance and two chunks to be computed; all of
//      them at most half of M, in equal parts, and then fewer requests. Without a cache they get
//      only what the requests and chunks need. A window that holds a whole context does not slide.
// The result may serve fewer requests, or a shorter context, than was asked for: the plan says so.
// Only a budget that cannot hold one request with one page is an error.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/status.h>

#include "cache/kv_layout.h"
#include "cache/pool_sizes.h"

namespace heddle::cache {

inline constexpr int32_t kDefaultMaxRunning = 64;
inline constexpr int32_t kMaxRunningLimit = 4096;
inline constexpr int64_t kMaxElasticPages = int64_t{1} << 24;  // what ids cost on the host: 200 MiB
inline constexpr int64_t kMaxElasticSlots = int64_t{1} << 20;
inline constexpr int64_t kTypicalTokens = 2048;    // rule 9
inline constexpr double kDefaultStateShare = 0.9;  // state : KV, the reference's default ratio

// Layers of a page table with a window.
struct SlidingLayers {
  int64_t window = 0;  // in tokens, the widest of these layers
  std::vector<KvLayout> kv;
};

struct PoolBudget {
  int64_t bytes = 0;                   // M
  int32_t page_size = 16;              // tokens of a page, the same in every group
  std::vector<KvLayout> kv;            // of the model and its draft network
  std::vector<SlidingLayers> sliding;  // rule 9, the narrowest first; empty: all are in `kv`
  int64_t chunk_tokens = 0;            // most prompt tokens of one step; rule 9 uses it
  std::vector<StateLayout> states;
  std::vector<StateLayout> snapshots;  // rule 8; empty: snapshots share the states' slots
  int64_t context_length = 0;          // most tokens of a sequence that the model takes
  int32_t max_running_requests = 0;    // 0: as many as fit, at most default_max_running
  int32_t default_max_running = kDefaultMaxRunning;
  int64_t max_total_tokens = 0;  // 0: from the budget
  double state_share = kDefaultStateShare;
  int32_t slots_per_request = 1;         // state slots a running request may hold at once
  bool limit_to_running = true;          // rule 5
  bool elastic = false;                  // rule 7
  int64_t release_granule_bytes = 4096;  // of the device (device.h); 0: memory is not returned
  int64_t slot_extra_bytes =
      0;  // kept beside every state that may become a snapshot: hidden vectors

  [[nodiscard]] int64_t page_bytes() const { return bytes_per_page(kv); }

  [[nodiscard]] int64_t token_bytes() const { return page_bytes() / page_size; }
};

struct PoolPlan {
  // max_sequences is max_running of the rules; the runner adds flops and keeps_hidden. shared_bytes
  // excludes the slots 0.
  PoolSizes sizes;

  // Limit for one sequence: the model's, or the capacity of the KV pool if that is less.
  int64_t context_length = 0;
};

// Errors: kInvalidArgument for bad layouts and options; kResourceExhausted, naming the memory
// needed, the memory available and the option to change.
Result<PoolPlan> size_pools(const PoolBudget& budget);

// Splits a budget between states and KV by ratio alone (rules 2 and 3).
struct PoolSplit {
  int64_t num_states = 0;
  int64_t kv_tokens = 0;  // a multiple of the page size
};

// `bytes` and `state_share` are >= 0, both sizes > 0 (checked).
[[nodiscard]] PoolSplit split_by_share(int64_t bytes, int64_t state_bytes,
                                       int64_t kv_bytes_per_token, int32_t page_size,
                                       double state_share);

}  // namespace heddle::cache
