// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5: Llama with biases on queries, keys and values. arXiv:2407.10671.
//
// Layers from max_window_layers on slide where use_sliding_window is true; no published model does.
#pragma once

#include <memory>

#include "models/model.h"

namespace heddle::models {

// Error: kUnimplemented, naming the config key that this family does not serve.
Result<std::unique_ptr<const Model>> create_qwen2(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
