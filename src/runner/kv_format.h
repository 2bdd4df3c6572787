// SPDX-License-Identifier: Apache-2.0
// What a model's keys and values are stored as: what was asked for, or else what the checkpoint was
// calibrated for, or else what its weights are.
//
// Threading: values, used while a model loads.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "checkpoint/kv_scales.h"
#include "checkpoint/model_config.h"
#include "models/model.h"

namespace heddle::runner {

// "auto" (none), "fp8_e4m3", and what parse_dtype() takes. Error: kInvalidArgument, listing them.
Result<std::optional<DType>> parse_kv_dtype(std::string_view name);

struct KvRequest {
  std::optional<DType> asked;  // parse_kv_dtype()
  bool float32_run = false;    // exact mode or a dtype of float32: nothing is rounded unasked
};

// None: as the large weights. Error: kUnimplemented where FP8 is asked of a model that keeps
// latents. Where the checkpoint has a KV format that is not served, that is logged, and none.
Result<std::optional<DType>> choose_kv_dtype(const KvRequest& request,
                                             const checkpoint::ModelConfig& config,
                                             const models::CacheNeeds& needs);

// [num_kv_layers], of the checkpoint; those that are missing are logged and 1.
// Error: as checkpoint::read_kv_scales().
Result<std::vector<checkpoint::KvScales>> load_kv_scales(const checkpoint::WeightSource& source,
                                                         const models::CacheNeeds& needs);

}  // namespace heddle::runner
