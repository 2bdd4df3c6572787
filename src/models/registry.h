// SPDX-License-Identifier: Apache-2.0
// The architectures this build serves, by the name config.json gives them.
#pragma once

#include <memory>
#include <span>
#include <string_view>

#include "models/model.h"

namespace heddle::models {

// "Qwen3NextForCausalLM", ...
std::span<const std::string_view> served_architectures();

// Error: kUnimplemented, listing what is served; kInvalidArgument for a config the family cannot
// be.
Result<std::unique_ptr<const Model>> create_model(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
