// SPDX-License-Identifier: Apache-2.0
// How large a model's weights are, without loading them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "checkpoint/model_config.h"
#include "models/model.h"

namespace heddle::tools {

// Logical parameters, however they are stored.
[[nodiscard]] int64_t model_parameters(const models::Model& model);

struct WeightSize {
  int64_t bytes = 0;
  std::string form;  // "as bfloat16"
};

// Every parameter in `dtype`; of a quantised checkpoint what its files store, because only they say
// tensor by tensor in which format. Without files its size unquantised, and `form` says so.
[[nodiscard]] WeightSize weight_size(const std::filesystem::path& folder,
                                     const checkpoint::ModelConfig& config,
                                     const models::Model& model, DType dtype);

}  // namespace heddle::tools
