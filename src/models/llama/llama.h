// SPDX-License-Identifier: Apache-2.0
// Llama 2 and 3: attention with rotary positions and SwiGLU in every layer, nothing else.
// Touvron et al., "Llama 2", arXiv:2307.09288; "The Llama 3 Herd of Models", arXiv:2407.21783.
//
// Llama 3.1 and later stretch the long wavelengths of the rotary embedding (rope_type llama3).
#pragma once

#include <memory>

#include "models/model.h"

namespace heddle::models {

// Error: kUnimplemented, naming the config key that this family does not serve.
Result<std::unique_ptr<const Model>> create_llama(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
