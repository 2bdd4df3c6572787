// SPDX-License-Identifier: Apache-2.0
// plan_pools: the pools that a model gets from the memory there is. load_model() makes them, and
// `heddle inspect` tells of them without loading anything.
//
// Threading: a pure function.
#pragma once

#include <heddle/engine.h>

#include "cache/kv_layout.h"
#include "cache/pool_sizing.h"
#include "checkpoint/model_config.h"
#include "models/model.h"

namespace heddle::runner {

struct PlannedPools {
  cache::PoolPlan plan;
  cache::KvLayout kv;
  cache::StateLayout state;
  cache::StateLayout snapshot;  // num_layers = 0: snapshots are working states at rest
  DType snapshot_dtype = DType::kF32;
  int64_t hidden_width = 0;  // of the vector kept with a snapshot; 0: none is

  [[nodiscard]] int64_t hidden_bytes() const { return bytes_of(DType::kF32, hidden_width); }
};

// `available_bytes`: memory beside the weights, of which options.memory_fraction becomes pools.
// Errors: kInvalidArgument naming the option; kResourceExhausted when not one request fits.
Result<PlannedPools> plan_pools(const EngineOptions& options, const checkpoint::ModelConfig& config,
                                const models::CacheNeeds& needs, DType kv_dtype,
                                int64_t available_bytes);

}  // namespace heddle::runner
