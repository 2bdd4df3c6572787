// SPDX-License-Identifier: Apache-2.0
#include "models/deepseek/deepseek.h"

#include <utility>

#include <fmt/format.h>

#include "models/layers/decoder.h"
#include "models/layers/latent_attention.h"
#include "models/layers/scored_moe.h"
#include "models/layers/swiglu_mlp.h"

namespace heddle::models {

Result<std::unique_ptr<const Model>> create_deepseek(const checkpoint::ModelConfig& config) {
  HEDDLE_RETURN_IF_ERROR(check_features(config, {.family = "DeepSeek", .experts = true}));
  std::vector<DecoderLayer> layers;
  for (size_t i = 0; i < static_cast<size_t>(config.num_layers); ++i) {
    DecoderLayer layer{.mixer = std::make_unique<LatentAttention>(config), .feed_forward = nullptr};
    if (config.is_moe_layer[i]) {
      layer.feed_forward = std::make_unique<ScoredMoe>(config.hidden_size, *config.moe);
    } else {
      layer.feed_forward =
          std::make_unique<SwigluMlp>(config.hidden_size, config.intermediate_size);
    }
    layers.push_back(std::move(layer));
  }
  DecoderOptions options;
  for (int64_t i = 0; i < config.num_nextn_predict_layers; ++i) {
    options.ignored_prefixes.push_back(fmt::format("model.layers.{}.", config.num_layers + i));
  }
  return make_decoder(config, std::move(options), std::move(layers));
}

}  // namespace heddle::models
