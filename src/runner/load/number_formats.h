// SPDX-License-Identifier: Apache-2.0
// The dtypes and roundings of a forward pass that the enums of EngineOptions name.
#pragma once

#include <optional>

#include <heddle/options.h>

#include "checkpoint/model_config.h"
#include "checkpoint/packed_load.h"
#include "core/dtype.h"

namespace heddle::runner {

// None: kAuto.
[[nodiscard]] std::optional<DType> dtype_of(RunDtype dtype);
[[nodiscard]] std::optional<DType> dtype_of(KvCacheDtype dtype);

// How the weights of `config` are quantised at load; nullopt: not at all. Error: kInvalidArgument
// where the option and the checkpoint name different formats.
[[nodiscard]] Result<std::optional<checkpoint::Rounding>> rounding_of(
    Quantization quantization, const checkpoint::ModelConfig& config, bool dummy_weights);

// The names of a run's dtype, for what shows options as they were settled.
// `dtype` is float32, bfloat16 or float16.
[[nodiscard]] RunDtype run_dtype(DType dtype);

// `dtype` is one of these, or float8_e4m3.
[[nodiscard]] KvCacheDtype kv_cache_dtype(DType dtype);

}  // namespace heddle::runner
