// SPDX-License-Identifier: Apache-2.0
#include "models/qwen3_moe/qwen3_moe.h"

#include <utility>

#include "models/layers/attention.h"
#include "models/layers/decoder.h"
#include "models/layers/sparse_moe.h"
#include "models/layers/swiglu_mlp.h"

namespace heddle::models {

Result<std::unique_ptr<const Model>> create_qwen3_moe(const checkpoint::ModelConfig& config) {
  HEDDLE_RETURN_IF_ERROR(
      check_features(config, {.family = "Qwen3-MoE", .attention_bias = true, .experts = true}));
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = true;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;

  std::vector<DecoderLayer> layers;
  for (size_t i = 0; i < static_cast<size_t>(config.num_layers); ++i) {
    DecoderLayer layer{.mixer = std::make_unique<Attention>(attention), .feed_forward = nullptr};
    if (config.is_moe_layer[i]) {
      layer.feed_forward = std::make_unique<SparseMoe>(config.hidden_size, *config.moe);
    } else {
      layer.feed_forward =
          std::make_unique<SwigluMlp>(config.hidden_size, config.intermediate_size);
    }
    layers.push_back(std::move(layer));
  }
  return make_decoder(config, {}, std::move(layers));
}

}  // namespace heddle::models
