// SPDX-License-Identifier: Apache-2.0
// Kimi-Linear: a hybrid decoder. Three layers of four are Kimi Delta Attention, the others latent
// attention without positions; all feed-forward blocks but the first are mixtures of experts chosen
// by corrected sigmoid scores. Kimi Team, "Kimi Linear", arXiv:2510.26692.
#pragma once

#include <memory>

#include "models/model.h"

namespace heddle::models {

// Error: kUnimplemented, naming the config key that asks for more.
Result<std::unique_ptr<const Model>> create_kimi_linear(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
