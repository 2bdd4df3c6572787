// SPDX-License-Identifier: Apache-2.0
// EAGLE, also as EAGLE-2 has it: a trained network of one layer that drafts for another model. It
// shares the model's embedding and head, and has no norms but the one before its MLP. With e the
// embedding of the token at p + 1, and h what the model's head reads at p or what the slot before
// gave:
//
//     x = W concat(e, h) + b;   y = x + attention(x);   z = y + mlp(norm(y));   logits = head(z)
//
// z is what the next slot reads. Li et al., "EAGLE", arXiv:2401.15077; "EAGLE-2", arXiv:2406.16858,
// is the same network with trees that its own probabilities shape (speculative/tree_growth.h). The
// layout of files is the published one of Llama and Qwen2 heads.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/model_config.h"
#include "models/drafts/draft_model.h"

namespace heddle::models {

// Reads <folder>/config.json. Errors: those of load_draft_config(); kUnimplemented for a network
// with more than a layer, or one of EAGLE-3.
Result<std::unique_ptr<const DraftModel>> load_eagle(const std::filesystem::path& folder,
                                                     const checkpoint::ModelConfig& target);

}  // namespace heddle::models
