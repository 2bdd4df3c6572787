// SPDX-License-Identifier: Apache-2.0
// Qwen3: Llama with an RMS norm per head of queries and keys, before the rotation, and a head width
// of its own. "Qwen3 Technical Report", arXiv:2505.09388.
#pragma once

#include <memory>

#include "models/model.h"

namespace heddle::models {

// Error: kUnimplemented, naming the config key that this family does not serve.
Result<std::unique_ptr<const Model>> create_qwen3(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
