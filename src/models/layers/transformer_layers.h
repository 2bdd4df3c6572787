// SPDX-License-Identifier: Apache-2.0
// The layers of a plain transformer as its config.json describes them: attention, and an MLP or
// experts.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/attention.h"
#include "models/layers/decoder.h"

namespace heddle::models {

// A SwiGLU MLP, or experts where config.is_moe_layer has the layer.
std::unique_ptr<const FeedForward> make_feed_forward(const checkpoint::ModelConfig& config,
                                                     int64_t layer);

// All layers: `attention` with the window of each, and its feed-forward block.
std::vector<DecoderLayer> transformer_layers(const checkpoint::ModelConfig& config,
                                             AttentionOptions attention);

}  // namespace heddle::models
