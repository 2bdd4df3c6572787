// SPDX-License-Identifier: Apache-2.0
// How a model's cache is planned while it loads: what its keys and values are stored as, and how
// many pages and state slots the memory has room for. load_model() makes the pools, and `heddle
// inspect` shows the plan without loading anything.
//
// Threading: pure functions.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <heddle/engine.h>

#include "cache/kv_layout.h"
#include "cache/pool_sizing.h"
#include "checkpoint/kv_scales.h"
#include "checkpoint/model_config.h"
#include "models/model.h"
#include "runner/load/choose_device.h"
#include "speculative/tree_growth.h"

namespace heddle::runner {

struct KvRequest {
  std::optional<DType> asked;  // EngineOptions::kv_cache_dtype; none: kAuto
  bool float32_run = false;    // exact mode or a dtype of float32: nothing is rounded unasked
};

// None: as the large weights. Where the checkpoint has a KV format that is not served, that is
// logged, and none.
std::optional<DType> choose_kv_dtype(const KvRequest& request,
                                     const checkpoint::ModelConfig& config);

// [num_kv_layers], of the checkpoint; those that are missing are logged and 1.
// Error: as checkpoint::read_kv_scales().
Result<std::vector<checkpoint::KvScales>> load_kv_scales(const checkpoint::WeightSource& source,
                                                         const models::CacheNeeds& needs);

inline constexpr int32_t kDefaultDraftTokens = 8;
inline constexpr int32_t kMostDraftRows = 64;
inline constexpr int32_t kMostForcedRows = 32;  // of forced tokens, without a drafter
inline constexpr int32_t kMostBranches = 16;    // of a level of a tree

// SpeculativeOptions::num_draft_tokens with its default, or as its num_steps say; 0 without drafts,
// and with kAuto, which is to be settled before (choose_drafts.h).
[[nodiscard]] int32_t num_draft_tokens(const SpeculativeOptions& options);

// The trees that a network drafts; topk is 1 where it drafts chains.
[[nodiscard]] speculative::TreeShape tree_shape(const SpeculativeOptions& options);

// Whether trees are as the options say they are. Error: kInvalidArgument, naming the option.
[[nodiscard]] Status check_tree_shape(const SpeculativeOptions& options);

// The most rows of sequences with drafts that a step may have, before memory is looked at. Without
// a drafter they are for tokens that the form of an answer forces (scheduler/stream_drafts.h).
[[nodiscard]] int64_t max_draft_rows(const SpeculativeOptions& options);

// A small model that drafts has states of its own: one for each sequence, and as many for guesses,
// which sequences with drafts have in one step, of two rows each at least.
[[nodiscard]] int64_t num_guess_states(int64_t max_sequences);
[[nodiscard]] int64_t drafter_state_bytes(const models::CacheNeeds& needs, int64_t max_sequences);

struct PlannedPools {
  cache::PoolPlan plan;
  cache::KvLayout kv;
  cache::KvLayout window_kv;  // num_layers = 0: all layers are in `kv`
  cache::KvLayout draft_kv;   // in the pages of `kv`; num_layers = 0: no network drafts
  cache::StateLayout state;
  cache::StateLayout snapshot;  // num_layers = 0: snapshots are working states at rest
  DType snapshot_dtype = DType::kF32;
  int64_t hidden_width = 0;  // of the vector kept with a snapshot; 0: none is
};

// The device that the pools are made on, as far as their sizes depend on it.
struct PoolMemory {
  int64_t available_bytes = 0;           // beside the weights
  int64_t total_bytes = 0;               // of the device, for static_memory_fraction
  int64_t weights_bytes = 0;             // likewise, those of a model that drafts included
  int64_t release_granule_bytes = 4096;  // device::Device's
  DType hidden_dtype = DType::kF32;      // of kept hidden vectors
  DeviceDefaults defaults = defaults_for(device::DeviceKind::kCpu);

  std::optional<models::CacheNeeds> draft_needs = {};  // of a network that drafts, or a model
};

// options.memory_fraction of the available memory becomes pools; or static_memory_fraction of the
// device's, less the weights.
// States of drafts have their part of it: those of one sequence at least, and up to kMostDraftRows;
// so have those of a small model that drafts. Without a drafter, states for forced tokens have 1 %
// of it at most, and up to kMostForcedRows.
// Errors: kInvalidArgument naming the option; kResourceExhausted when not one request fits;
// kUnimplemented where layers keep memory of different shapes (CacheNeeds::check_shapes()).
Result<PlannedPools> plan_pools(const EngineOptions& options, const checkpoint::ModelConfig& config,
                                const models::CacheNeeds& needs, DType kv_dtype,
                                const PoolMemory& memory);

}  // namespace heddle::runner
