// SPDX-License-Identifier: Apache-2.0
#include "models/qwen3_5/qwen3_5.h"

#include <utility>

#include "models/layers/attention.h"
#include "models/layers/decoder.h"
#include "models/layers/gated_delta_net.h"
#include "models/layers/sparse_moe.h"
#include "models/layers/swiglu_mlp.h"

namespace heddle::models {

Result<std::unique_ptr<const Model>> create_qwen3_5(const checkpoint::ModelConfig& config) {
  const bool moe = config.architecture.starts_with("Qwen3_5Moe");
  HEDDLE_RETURN_IF_ERROR(check_features(config, {.family = moe ? "Qwen3.5-MoE" : "Qwen3.5",
                                                 .linear_attention = true,
                                                 .dense_layers = !moe,
                                                 .experts = moe}));
  if (!config.attention_output_gate) {
    return unimplemented("config.json: attn_output_gate is false; Qwen3.5 is served with the gate");
  }
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = true;
  attention.qk_norm_offset = 1;
  attention.output_gate = true;

  std::vector<DecoderLayer> layers;
  for (size_t i = 0; i < static_cast<size_t>(config.num_layers); ++i) {
    DecoderLayer layer;
    if (config.layer_kinds[i] == checkpoint::LayerKind::kLinearAttention) {
      layer.mixer = std::make_unique<GatedDeltaNet>(*config.linear_attention, config.hidden_size,
                                                    config.rms_norm_eps);
    } else {
      layer.mixer = std::make_unique<Attention>(attention);
    }
    if (moe) {
      layer.feed_forward = std::make_unique<SparseMoe>(config.hidden_size, *config.moe);
    } else {
      layer.feed_forward =
          std::make_unique<SwigluMlp>(config.hidden_size, config.intermediate_size);
    }
    layers.push_back(std::move(layer));
  }
  const bool has_vision = config.architecture.ends_with("ForConditionalGeneration");
  return make_decoder(config,
                      {.hub_prefix = has_vision ? "model.language_model." : "model.",
                       .norm_offset = 1,
                       .ignored_prefixes = {"mtp.", "model.visual.", "visual."}},
                      std::move(layers));
}

}  // namespace heddle::models
