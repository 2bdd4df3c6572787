// SPDX-License-Identifier: Apache-2.0
// EAGLE-3: a trained network of one layer that drafts for another model. It reads the residual
// stream behind three layers of the model, low, middle and high, and has a vocabulary of its own of
// the model's most frequent tokens. With e the embedding of the token at p + 1, which is the
// model's, and h = W concat(low, middle, high) of p or what the slot before gave:
//
//     x = h + attention(concat(norm(e), norm(h)));   y = x + mlp(norm(x))
//     logits = head(norm(y))
//
// y is what the next slot reads. Li et al., "EAGLE-3", arXiv:2503.01840; the layout of files is the
// published one of Llama heads.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/model_config.h"
#include "models/drafts/draft_model.h"

namespace heddle::models {

// Reads <folder>/config.json. Error: as load_config(); kInvalidArgument for a network of another
// model, naming what differs; kUnimplemented for one with more than a layer or another width.
Result<std::unique_ptr<const DraftModel>> load_eagle3(const std::filesystem::path& folder,
                                                      const checkpoint::ModelConfig& target);

}  // namespace heddle::models
