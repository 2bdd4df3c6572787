// SPDX-License-Identifier: Apache-2.0
#include "models/layers/transformer_layers.h"

#include "models/layers/sparse_moe.h"
#include "models/layers/swiglu_mlp.h"

namespace heddle::models {

std::unique_ptr<const FeedForward> make_feed_forward(const checkpoint::ModelConfig& config,
                                                     int64_t layer) {
  if (config.is_moe_layer[static_cast<size_t>(layer)]) {
    return std::make_unique<SparseMoe>(config.hidden_size, *config.moe);
  }
  return std::make_unique<SwigluMlp>(config.hidden_size, config.intermediate_size);
}

std::vector<DecoderLayer> transformer_layers(const checkpoint::ModelConfig& config,
                                             AttentionOptions attention) {
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    attention.window = config.window_of(i);
    layers.push_back({std::make_unique<Attention>(attention), make_feed_forward(config, i)});
  }
  return layers;
}

}  // namespace heddle::models
