// SPDX-License-Identifier: Apache-2.0
// gpt-oss: attention with a sink per head and biases everywhere, sliding in every other layer, and
// experts with biases and a bounded SwiGLU. "gpt-oss-120b & gpt-oss-20b Model Card",
// arXiv:2508.10925.
#pragma once

#include <memory>

#include "models/model.h"

namespace heddle::models {

// Error: kUnimplemented, naming the config key that this family does not serve.
Result<std::unique_ptr<const Model>> create_gpt_oss(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
