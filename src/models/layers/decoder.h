// SPDX-License-Identifier: Apache-2.0
// Decoder: the model that all families share the frame of. Embedding, layers, final norm, head:
//
//     h = x + mixer(norm(x));   x' = h + feed_forward(norm(h))
//
// A family says which mixer and which feed-forward block each layer has, and how its checkpoints
// spell the rest.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "models/layers/attention.h"
#include "models/layers/block.h"
#include "models/model.h"

namespace heddle::models {

struct DecoderLayer {
  std::unique_ptr<const Mixer> mixer;
  std::unique_ptr<const FeedForward> feed_forward;
};

struct DecoderOptions {
  std::string hub_prefix = "model.";  // of everything but lm_head
  float norm_offset = 0;              // 1: norms are zero-centred, they multiply by 1 + w
  std::vector<std::string> ignored_prefixes = {};  // hub tensors a plain pass has no use for
};

// The weights of one layer, its norms included. `ours` and `hub` are its prefix: "layers.3.".
void add_layer_weights(std::vector<checkpoint::WeightSpec>& specs, const DecoderLayer& layer,
                       const std::string& ours, const std::string& hub,
                       const checkpoint::ModelConfig& config, float norm_offset);

// h [T, H] -> x' [T, H], within the layer's scope.
graph::Value build_layer(graph::GraphBuilder& g, const DecoderLayer& layer, graph::Value h,
                         const LayerInputs& inputs, int64_t cache_layer, double epsilon);

// One layer for each of config.num_layers.
std::unique_ptr<const Model> make_decoder(const checkpoint::ModelConfig& config,
                                          DecoderOptions options, std::vector<DecoderLayer> layers);

// The layers of a plain transformer as its config.json describes them: `attention` with the window
// of each layer, and an MLP or experts.
std::vector<DecoderLayer> transformer_layers(const checkpoint::ModelConfig& config,
                                             AttentionOptions attention);

}  // namespace heddle::models
