// SPDX-License-Identifier: Apache-2.0
// Mistral: Llama with a sliding window, in every layer unless the config says otherwise. Jiang et
// al., "Mistral 7B", arXiv:2310.06825. From v0.2 on sliding_window is null: full attention.
#pragma once

#include <memory>

#include "models/model.h"

namespace heddle::models {

// Error: kUnimplemented, naming the config key that this family does not serve.
Result<std::unique_ptr<const Model>> create_mistral(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
