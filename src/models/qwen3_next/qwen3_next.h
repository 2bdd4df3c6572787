// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next: a hybrid decoder. Three layers of four are gated delta networks (a short convolution
// and a recurrence over one matrix per head), every fourth is gated attention with partial rotary
// embedding; all feed-forward blocks are mixtures of experts with a shared one, unless the config
// says otherwise.
//
//     h = x + mixer(norm(x));   x' = h + mlp(norm(h))
//
// All norms but the one inside the delta network are zero-centred: loaded as 1 + w.
#pragma once

#include <memory>

#include "models/model.h"

namespace heddle::models {

// Error: kInvalidArgument or kUnimplemented, naming the config key that does not fit this
// architecture.
Result<std::unique_ptr<const Model>> create_qwen3_next(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
