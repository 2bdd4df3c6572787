// SPDX-License-Identifier: Apache-2.0
// How a model's cache is planned while it loads: how many pages and state slots the memory has room
// for. load_model() makes the pools, and `heddle inspect` shows the plan without loading anything.
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

// The recurrent states of a small model that drafts: one for each sequence and for each guess
// (speculative::num_guess_states()).
[[nodiscard]] int64_t drafter_state_bytes(const models::CacheNeeds& needs, int64_t max_sequences);

struct PlannedPools {
  cache::PoolPlan plan;
  request::StepLimits limits;  // limits for drafts
  DType snapshot_dtype = DType::kF32;
  int64_t hidden_width = 0;  // width of the vector kept with a snapshot; 0: none
};

// The device that the pools are made on, as far as their sizes depend on it.
struct PoolMemory {
  int64_t available_bytes = 0;           // beside the weights
  int64_t total_bytes = 0;               // device memory, for static_memory_fraction
  int64_t weights_bytes = 0;             // weights on the device, including a draft model's
  int64_t release_granule_bytes = 4096;  // device::Device's
  DType hidden_dtype = DType::kF32;      // dtype of stored hidden vectors
  DeviceDefaults defaults = defaults_for(device::DeviceKind::kCpu);

  std::optional<models::CacheNeeds> draft_needs = {};  // needs of a draft network or draft model
};

// options.memory_fraction of the available memory becomes pools; or static_memory_fraction of the
// device's, less the weights.
// States of drafts have their part of it: those of one sequence at least, and up to kMostDraftRows;
// so have those of a small model that drafts. Without a drafter, states for forced tokens have 1 %
// of it at most, and up to kMostForcedRows.
// Errors: kInvalidArgument naming the option; kResourceExhausted when not one request fits.
Result<PlannedPools> plan_pools(const EngineOptions& options, const checkpoint::ModelConfig& config,
                                const models::CacheNeeds& needs, DType kv_dtype,
                                const PoolMemory& memory);

}  // namespace heddle::runner
