// SPDX-License-Identifier: Apache-2.0
// PredictionHead: the multi-token-prediction head inside a checkpoint, one more decoder layer that
// guesses the token after the next one. With e the embedding of the token at p + 1 and h the
// model's vector at p after its final norm, or what the slot before gave:
//
//     x = layer(W concat(norm(e), norm(h)));   y = norm(x);   logits = head(y)
//
// y is what the next slot reads. Embedding and head are the model's. DeepSeek-AI, "DeepSeek-V3
// Technical Report", arXiv:2412.19437, section 2.2.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/drafts/draft_model.h"
#include "models/layers/decoder.h"

namespace heddle::models {

// How the hub names the parts.
struct PredictionHeadNames {
  std::string layer;           // "mtp.layers.0."
  std::string projection;      // "mtp.fc": W, the half for e first
  std::string embedding_norm;  // "mtp.pre_fc_norm_embedding"
  std::string hidden_norm;
  std::string final_norm;
};

// The names in files that store the head as one more layer of the model, with index `layer`.
PredictionHeadNames nextn_names(int64_t layer);

// `names`: as the model's checkpoint has them, then as others may.
std::unique_ptr<const DraftModel> make_prediction_head(const checkpoint::ModelConfig& config,
                                                       std::vector<PredictionHeadNames> names,
                                                       DecoderLayer layer, float norm_offset);

}  // namespace heddle::models
