// SPDX-License-Identifier: Apache-2.0
// Qwen3.5, dense and with experts: the layers of Qwen3-Next with separate projections. Three layers
// of four are gated delta networks, every fourth is gated attention with a partial rotary
// embedding. Yang, Kautz and Hatamizadeh, "Gated Delta Networks", arXiv:2412.06464.
//
// Of a checkpoint with a vision tower the language model is served; its rotary positions in text
// are the plain ones.
#pragma once

#include <memory>

#include "models/model.h"

namespace heddle::models {

// Error: kUnimplemented, naming the config key that this family does not serve.
Result<std::unique_ptr<const Model>> create_qwen3_5(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
