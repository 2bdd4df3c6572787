// SPDX-License-Identifier: Apache-2.0
// size_pools: computes the number of KV pages, state slots and snapshot slots from a memory budget.
// A pure function, so that every rule below is a unit test.
//
// The rules, in this order; M is the budget for all pools, s the bytes of a state, k the bytes of a
// page:
//   1. Models without state give all of M to KV; models without KV give all of M to states.
//   2. A fixed max_running_requests asks for max_running * slots_per_request states. Otherwise
//      states get the share r / (1 + r) of M, r = state_share, and at most the states of
//      default_max_running requests.
//   3. A fixed max_total_tokens is served before the states. Otherwise KV gets what they leave.
//   4. If rule 2 leaves less than one page for KV, states get less, down to those of one request.
//   5. KV gets at most max_running * context_length tokens if nothing is cached beyond running
//      requests.
//   6. max_running = min(asked for or default_max_running, states / slots_per_request, pages).
//   7. `elastic` replaces 2 and 5: the cache fills all of the memory, and its split into pages and
//      states moves with the load. Each pool gets as many ids as fit while the other has its
//      minimum: pages next to one request's states, states next to one page. All ids together
//      exceed M; MemoryBudget keeps the ids in use within shared_bytes. The mappings commit memory
//      when it is touched, so more ids cost address space only, at most 2 M. Requests share M too:
//      max_running * (slots_per_request * s + k) <= M.
//      Nothing is shared, and shared_bytes is 0: for models with one kind of memory; with a fixed
//      max_total_tokens (states get the rest); where memory is not returned; and where a layer's
//      part of a page is smaller than release_granule_bytes, the pieces in which memory is returned
//      (states get their share of rule 2, however many they are).
//   8. Snapshots in a format of their own have slots of their own, of f bytes with the data stored
//      with them, and state slots are for running requests only. If memory is shared, there are as
//      many snapshot slots as fit next to one request's states and one page. If it is not, requests
//      get at most half of the memory for states, unless max_running_requests asks for more, and
//      snapshots the rest. One snapshot always fits. Only with `elastic`: without a cache there are
//      no snapshots.
//   9. If some layers slide and others do not, the sliding ones have page tables of their own, one
//      for each width of window. Their memory is reserved first; rules 1 to 8 share the rest. A
//      table gets the part of the KV memory that its window has in a sequence of kTypicalTokens,
//      and at least the pages that all requests need to advance and to compute two chunks. All
//      tables together get at most half of M, in equal parts, and then fewer requests run. Without
//      a cache they get only what the requests and chunks need. A window as long as the context
//      does not slide.
// The result may serve fewer requests, or a shorter context, than was asked for; the plan says so.
// The only error is a budget that cannot hold one request with one page.
#pragma once

#include <cstdint>
#include <vector>

#include <heddle/status.h>

#include "cache/kv_layout.h"
#include "cache/pool_sizes.h"

namespace heddle::cache {

inline constexpr int32_t kDefaultMaxRunning = 64;
inline constexpr int32_t kMaxRunningLimit = 4096;
// The host needs 200 MiB for this many ids.
inline constexpr int64_t kMaxElasticPages = int64_t{1} << 24;
inline constexpr int64_t kMaxElasticSlots = int64_t{1} << 20;
inline constexpr int64_t kTypicalTokens = 2048;    // length of a typical sequence, for rule 9
inline constexpr double kDefaultStateShare = 0.9;  // memory of states relative to that of KV; the
                                                   // reference's default ratio

// The layers of one page table with a window.
struct SlidingLayers {
  int64_t window = 0;  // the widest window of these layers, in tokens
  std::vector<KvLayout> kv;
};

struct PoolBudget {
  int64_t bytes = 0;                   // M: memory for all pools, in bytes
  int32_t page_size = 16;              // tokens per page, the same in every group
  std::vector<KvLayout> kv;            // layouts of the model and of its draft network
  std::vector<SlidingLayers> sliding;  // for rule 9, the narrowest first; empty: all layers are in
                                       // `kv`
  int64_t chunk_tokens = 0;            // most prompt tokens of one step, for rule 9
  std::vector<StateLayout> states;
  std::vector<StateLayout> snapshots;  // for rule 8; empty: snapshots use the states' slots
  int64_t context_length = 0;          // most tokens of a sequence that the model supports
  int32_t max_running_requests = 0;    // most running requests; 0: as many as fit, at most
                                       // default_max_running
  int32_t default_max_running = kDefaultMaxRunning;
  int64_t max_total_tokens = 0;  // largest number of tokens in the KV pool; 0: computed from the
                                 // budget
  double state_share = kDefaultStateShare;
  int32_t slots_per_request = 1;         // state slots that a running request may hold at once
  bool limit_to_running = true;          // apply rule 5: limit KV to what running requests need
  bool elastic = false;                  // apply rule 7: pages and states share the memory
  int64_t release_granule_bytes = 4096;  // size of the pieces in which the device returns memory
                                         // (device.h); 0: memory is not returned
  // Bytes stored with every state that may become a snapshot: hidden vectors.
  int64_t slot_extra_bytes = 0;

  [[nodiscard]] int64_t page_bytes() const { return bytes_per_page(kv); }

  [[nodiscard]] int64_t token_bytes() const { return page_bytes() / page_size; }
};

struct PoolPlan {
  // Its max_sequences is max_running of the rules, and its shared_bytes excludes the slots 0. The
  // runner fills in flops and keeps_hidden.
  PoolSizes sizes;

  // Most tokens of one sequence: the model's limit, or the capacity of the KV pool if that is less.
  int64_t context_length = 0;
};

// Errors: kInvalidArgument for bad layouts and options; kResourceExhausted, with the memory needed,
// the memory available and the option to change.
Result<PoolPlan> size_pools(const PoolBudget& budget);

// Memory divided between states and KV by their ratio alone (rules 2 and 3).
struct PoolSplit {
  int64_t num_states = 0;
  int64_t kv_tokens = 0;  // tokens in KV pages, a multiple of the page size
};

// `bytes` and `state_share` must be >= 0, both sizes > 0 (checked).
[[nodiscard]] PoolSplit split_by_share(int64_t bytes, int64_t state_bytes,
                                       int64_t kv_bytes_per_token, int32_t page_size,
                                       double state_share);

}  // namespace heddle::cache
