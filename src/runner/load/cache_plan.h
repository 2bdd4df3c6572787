// SPDX-License-Identifier: Apache-2.0
// Plans a model's cache while it loads: how many pages and state slots fit in the memory.
// load_model() makes the pools; `heddle inspect` shows the plan without loading anything.
//
// Threading: pure functions.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <heddle/engine.h>

#include "cache/pool_sizing.h"
#include "checkpoint/model_config.h"
#include "models/model.h"
#include "request/step_limits.h"
#include "runner/load/choose_device.h"

namespace heddle::runner {

// Bytes of the recurrent states of a standalone draft model: one for each sequence, and those for
// guesses (speculative::num_guess_states()).
[[nodiscard]] int64_t drafter_state_bytes(const models::CacheNeeds& needs, int64_t max_sequences);

struct PlannedPools {
  cache::PoolPlan plan;
  request::StepLimits limits;  // limits that concern drafts
  DType snapshot_dtype = DType::kF32;
  int64_t hidden_width = 0;  // width of the hidden vector stored with a snapshot; 0: none is stored
};

// Properties of the device on which the sizes of the pools depend.
struct PoolMemory {
  int64_t available_bytes = 0;           // memory that is free next to the weights
  int64_t total_bytes = 0;               // all memory of the device, for static_memory_fraction
  int64_t weights_bytes = 0;             // weights on the device, including a draft model's
  int64_t release_granule_bytes = 4096;  // unit in which the device returns memory; of
                                         // device::Device
  DType hidden_dtype = DType::kF32;      // dtype of stored hidden vectors
  DeviceDefaults defaults = defaults_for(device::DeviceKind::kCpu);

  std::optional<models::CacheNeeds> draft_needs = {};  // needs of a draft network or draft model
};

// Pools get options.memory_fraction of the available memory; or static_memory_fraction of the
// device's memory, less the weights. States of drafts are a part of that: at least those of one
// sequence, and up to kMostDraftRows; so are the states of a standalone draft model. Without a
// drafter, states for forced tokens get at most 1 % of it, and at most kMostForcedRows. Errors:
// kInvalidArgument with the option; kResourceExhausted if not one request fits.
Result<PlannedPools> plan_pools(const EngineOptions& options, const checkpoint::ModelConfig& config,
                                const models::CacheNeeds& needs, DType kv_dtype,
                                const PoolMemory& memory);

}  // namespace heddle::runner
