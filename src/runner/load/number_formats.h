// SPDX-License-Identifier: Apache-2.0
// The dtypes and roundings of a forward pass for the enums of EngineOptions.
#pragma once

#include <optional>

#include <heddle/options.h>

#include "checkpoint/model_config.h"
#include "checkpoint/packed_load.h"
#include "core/dtype.h"

namespace heddle::runner {

// The dtype that the option names; no value: kAuto.
[[nodiscard]] std::optional<DType> dtype_of(RunDtype dtype);
[[nodiscard]] std::optional<DType> dtype_of(KvCacheDtype dtype);

// How the weights of `config` are quantised at load; nullopt: not at all. Error: kInvalidArgument
// if the option and the checkpoint name different formats.
[[nodiscard]] Result<std::optional<checkpoint::Rounding>> rounding_of(
    Quantization quantization, const checkpoint::ModelConfig& config, bool dummy_weights);

// The option value for a run's dtype, to show options with their final values. `dtype` is float32,
// bfloat16 or float16.
[[nodiscard]] RunDtype run_dtype(DType dtype);

// The same for keys and values; `dtype` is one of the above, or float8_e4m3.
[[nodiscard]] KvCacheDtype kv_cache_dtype(DType dtype);

}  // namespace heddle::runner
