// SPDX-License-Identifier: Apache-2.0
// The layers of a gated hybrid: three of four are gated delta networks (a short convolution and a
// recurrence over one matrix per head), every fourth is attention with a gate per channel, a norm
// per head and a partial rotary embedding. Yang, Kautz and Hatamizadeh, "Gated Delta Networks",
// arXiv:2412.06464.
//
//     h = x + mixer(norm(x));   x' = h + feed_forward(norm(h))
#pragma once

#include <memory>
#include <vector>

#include "checkpoint/config_reader.h"
#include "checkpoint/model_config.h"
#include "models/drafts/draft_model.h"
#include "models/layers/decoder.h"

namespace heddle::models {

// Fills in layer_kinds (layer_types or full_attention_interval), linear_attention (linear_*) and
// the default rotary fraction. Errors are stored in the reader.
void read_gated_hybrid(checkpoint::ConfigReader& reader, checkpoint::ModelConfig& config);

std::vector<DecoderLayer> gated_hybrid_layers(const checkpoint::ModelConfig& config);

// The multi-token-prediction head, stored under "mtp.": an attention layer, with experts if the
// model has experts.
std::unique_ptr<const DraftModel> gated_hybrid_head(const checkpoint::ModelConfig& config);

}  // namespace heddle::models
