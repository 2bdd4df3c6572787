// SPDX-License-Identifier: Apache-2.0
// EAGLE and EAGLE-2: a trained network of one layer that drafts for a target model. It shares the
// target's embedding and head, and its only norm is the one before its MLP. Let e be the embedding
// of the token at p + 1, and h the vector that the target's head reads at p or, if the target has
// not computed it, the output of the slot before:
//
//     x = W concat(e, h) + b;   y = x + attention(x);   z = y + mlp(norm(y));   logits = head(z)
//
// z is the input of the next slot. Li et al., "EAGLE", arXiv:2401.15077. EAGLE-2, arXiv:2406.16858,
// is the same network with trees that its own probabilities shape (speculative/tree_growth.h). The
// layout of files is the published one of Llama and Qwen2 heads.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/model_config.h"
#include "models/drafts/draft_model.h"

namespace heddle::models {

// Reads <folder>/config.json. Error: as load_draft_config(); kUnimplemented for a network with more
// than one layer, or for an EAGLE-3 network.
Result<std::unique_ptr<const DraftModel>> load_eagle(const std::filesystem::path& folder,
                                                     const checkpoint::ModelConfig& target);

}  // namespace heddle::models
