// SPDX-License-Identifier: Apache-2.0
// Chooses the number format of the KV cache, and reads the scales of a cache in FP8.
//
// Threading: pure functions.
#pragma once

#include <optional>
#include <vector>

#include "checkpoint/kv_scales.h"
#include "checkpoint/model_config.h"
#include "checkpoint/weight_source.h"
#include "core/dtype.h"
#include "models/cache_needs.h"

namespace heddle::runner {

struct KvRequest {
  std::optional<DType> asked;  // the dtype that EngineOptions::kv_cache_dtype names; no value:
                               // kAuto
  bool float32_run = false;    // exact mode, or a dtype of float32: nothing is rounded unless asked
                               // for
};

// The dtype of keys and values; no value: that of the large weights. If the checkpoint asks for a
// KV format that is not supported, that is logged and there is no value.
std::optional<DType> choose_kv_dtype(const KvRequest& request,
                                     const checkpoint::ModelConfig& config);

// [num_kv_layers()]: the scales in the checkpoint. Missing ones are logged and set to 1. Error: as
// checkpoint::read_kv_scales().
Result<std::vector<checkpoint::KvScales>> load_kv_scales(const checkpoint::WeightSource& source,
                                                         const models::CacheNeeds& needs);

}  // namespace heddle::runner
