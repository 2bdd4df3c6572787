// SPDX-License-Identifier: Apache-2.0
// EAGLE-3: a trained network of one layer that drafts for a target model. It reads the target's
// residual stream after three layers (low, middle, high) and has its own vocabulary of the target's
// most frequent tokens. Let e be the target's embedding of the token at p + 1, and h be W
// concat(low, middle, high) at p or, if the target has not computed p, the output of the slot
// before:
//
//     x = h + attention(concat(norm(e), norm(h)));   y = x + mlp(norm(x))
//     logits = head(norm(y))
//
// y is the input of the next slot. Li et al., "EAGLE-3", arXiv:2503.01840; the layout of files is
// the published one of Llama heads.
#pragma once

#include <filesystem>
#include <memory>

#include "checkpoint/model_config.h"
#include "models/drafts/draft_model.h"

namespace heddle::models {

// Reads <folder>/config.json. Error: as load_config(); kInvalidArgument, naming what differs, for a
// network of another model; kUnimplemented for one with more than one layer or another width.
Result<std::unique_ptr<const DraftModel>> load_eagle3(const std::filesystem::path& folder,
                                                      const checkpoint::ModelConfig& target);

}  // namespace heddle::models
