// SPDX-License-Identifier: Apache-2.0
// PredictionHead: the multi-token-prediction head of a checkpoint, an additional decoder layer that
// predicts the token after the next one. Let e be the embedding of the token at p + 1, and h the
// target model's vector at p after its final norm or, if the target has not computed it, the output
// of the slot before:
//
//     x = layer(W concat(norm(e), norm(h)));   y = norm(x);   logits = head(y)
//
// y is the input of the next slot. Embedding and head are the target model's. DeepSeek-AI,
// "DeepSeek-V3 Technical Report", arXiv:2412.19437, section 2.2.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/drafts/draft_model.h"
#include "models/layers/decoder.h"

namespace heddle::models {

// The hub's names of the head's parts.
struct PredictionHeadNames {
  std::string layer;           // prefix of the decoder layer: "mtp.layers.0."
  std::string projection;      // "mtp.fc": W, whose first half is multiplied by e
  std::string embedding_norm;  // norm of the embedding e: "mtp.pre_fc_norm_embedding"
  std::string hidden_norm;
  std::string final_norm;
};

// The names in files that store the head as an additional layer of the model, with index `layer`.
PredictionHeadNames nextn_names(int64_t layer);

// `names`: first those that the model's own checkpoints use, then alternatives.
std::unique_ptr<const DraftModel> make_prediction_head(const checkpoint::ModelConfig& config,
                                                       std::vector<PredictionHeadNames> names,
                                                       DecoderLayer layer, float norm_offset);

}  // namespace heddle::models
