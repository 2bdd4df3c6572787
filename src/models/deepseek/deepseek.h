// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2 and DeepSeek-V3 (R1, V3.1, Kimi-K2): latent attention in every layer, and a mixture
// of experts with shared ones in all but the first. V2 chooses by softmax scores, V3 by sigmoid
// scores with a correction that balances the experts. DeepSeek-AI, arXiv:2405.04434 and
// arXiv:2412.19437.
//
// The layers that predict further tokens, stored behind the others, draft; a plain pass has no use
// for them.
#pragma once

#include <memory>

#include "models/model.h"

namespace heddle::models {

// Error: kUnimplemented, naming the config key that asks for more.
Result<std::unique_ptr<const Model>> create_deepseek(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
