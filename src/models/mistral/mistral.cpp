// SPDX-License-Identifier: Apache-2.0
#include "models/mistral/mistral.h"

#include <utility>

#include "models/layers/attention.h"
#include "models/layers/decoder.h"
#include "models/layers/swiglu_mlp.h"

namespace heddle::models {

Result<std::unique_ptr<const Model>> create_mistral(const checkpoint::ModelConfig& config) {
  HEDDLE_RETURN_IF_ERROR(check_features(config, {.family = "Mistral", .sliding_window = true}));
  AttentionOptions attention = attention_options(config);

  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    attention.window = config.window_of(i);
    layers.push_back({std::make_unique<Attention>(attention),
                      std::make_unique<SwigluMlp>(config.hidden_size, config.intermediate_size)});
  }
  return make_decoder(config, {}, std::move(layers));
}

}  // namespace heddle::models
