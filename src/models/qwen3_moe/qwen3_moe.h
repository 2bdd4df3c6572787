// SPDX-License-Identifier: Apache-2.0
// Qwen3-MoE: the attention of Qwen3 and a mixture of experts in place of the MLP, without a shared
// expert. "Qwen3 Technical Report", arXiv:2505.09388.
#pragma once

#include <memory>

#include "models/model.h"

namespace heddle::models {

// Error: kUnimplemented, naming the config key that this family does not serve.
Result<std::unique_ptr<const Model>> create_qwen3_moe(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
