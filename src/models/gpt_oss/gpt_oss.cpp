// SPDX-License-Identifier: Apache-2.0
#include "models/gpt_oss/gpt_oss.h"

#include <utility>

#include "models/gpt_oss/biased_moe.h"
#include "models/layers/attention.h"
#include "models/layers/decoder.h"

namespace heddle::models {

Result<std::unique_ptr<const Model>> create_gpt_oss(const checkpoint::ModelConfig& config) {
  HEDDLE_RETURN_IF_ERROR(check_features(config, {.family = "gpt-oss",
                                                 .attention_bias = true,
                                                 .sliding_window = true,
                                                 .dense_layers = false,
                                                 .experts = true}));
  AttentionOptions attention = attention_options(config);
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  attention.sinks = true;

  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    attention.window = config.window_of(i);
    layers.push_back({std::make_unique<Attention>(attention),
                      std::make_unique<BiasedMoe>(config.hidden_size, *config.moe)});
  }
  return make_decoder(config, {}, std::move(layers));
}

}  // namespace heddle::models
