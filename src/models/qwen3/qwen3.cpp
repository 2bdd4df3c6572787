// SPDX-License-Identifier: Apache-2.0
#include "models/qwen3/qwen3.h"

#include <utility>

#include "models/layers/attention.h"
#include "models/layers/decoder.h"
#include "models/layers/swiglu_mlp.h"

namespace heddle::models {

Result<std::unique_ptr<const Model>> create_qwen3(const checkpoint::ModelConfig& config) {
  HEDDLE_RETURN_IF_ERROR(
      check_features(config, {.family = "Qwen3", .attention_bias = true, .sliding_window = true}));
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = true;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;

  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    attention.window = config.window_of(i);
    layers.push_back({std::make_unique<Attention>(attention),
                      std::make_unique<SwigluMlp>(config.hidden_size, config.intermediate_size)});
  }
  return make_decoder(config, {}, std::move(layers));
}

}  // namespace heddle::models
