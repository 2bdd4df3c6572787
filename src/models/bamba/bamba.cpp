// SPDX-License-Identifier: Apache-2.0
// Bamba: Mamba-2 layers and a few attention layers, which rotate half of each head, and SwiGLU in
// every layer.
// IBM, Princeton, CMU and UIUC, "Bamba", 2024.
#include <algorithm>

#include "checkpoint/rope_config.h"
#include "models/layers/decoder.h"
#include "models/layers/mamba2.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

checkpoint::SharedKeys bamba_keys(ConfigReader& /*reader*/) { return {.reads_rope = true}; }

void read_bamba_config(ConfigReader& reader, ModelConfig& config) {
  const std::vector<int64_t> attention =
      reader.integers("attn_layer_indices", {0, config.num_layers - 1});
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const bool listed = std::ranges::find(attention, i) != attention.end();
    config.layer_kinds.push_back(listed ? LayerKind::kFullAttention : LayerKind::kLinearAttention);
  }
  const std::vector<LayerKind> indexed = config.layer_kinds;
  checkpoint::read_layer_kinds(reader, config,
                               {LayerKind::kLinearAttention, LayerKind::kFullAttention},
                               [&](int64_t layer) { return indexed[static_cast<size_t>(layer)]; });
  if (reader.has("attn_layer_indices") && config.layer_kinds != indexed) {
    reader.fail("attn_layer_indices", "which contradicts layer_types");
  }
  config.attention_bias = reader.boolean("attention_bias", false);
  // transformers' class rotates half of each head, whatever the file says.
  config.rope = checkpoint::read_rope_configs(reader, {.rope = config.rope}, /*slides=*/false,
                                              config.max_position_embeddings)
                    .rope;
  config.rope.partial_rotary_factor = 0.5;
  config.own.set(read_mamba2(reader, config));
}

std::unique_ptr<const Model> create_bamba(const ModelConfig& config) {
  AttentionOptions attention = attention_options(config);
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    std::unique_ptr<const Mixer> mixer;
    if (config.layer_kinds[static_cast<size_t>(i)] == LayerKind::kFullAttention) {
      mixer = std::make_unique<Attention>(attention);
    } else {
      mixer = std::make_unique<Mamba2>(config.own.get<Mamba2Config>(), config.hidden_size,
                                       Mamba2Options{.epsilon = config.rms_norm_eps});
    }
    layers.push_back(
        make_layer(Frame::kPre, {.mixer = std::move(mixer)},
                   {.feed_forward = make_feed_forward(config, i), .hub_scope = "feed_forward."}));
    layers.back().blocks.back().norm = "pre_ff_layernorm";
  }
  return make_decoder(config, {.hub_norm = "final_layernorm"}, std::move(layers));
}

}  // namespace

Family bamba() {
  return {.name = "Bamba",
          .architectures = {"BambaForCausalLM"},
          .model_types = {{"bamba", "BambaForCausalLM"}},
          .shared_keys = bamba_keys,
          .read_config = read_bamba_config,
          .create = create_bamba};
}

}  // namespace heddle::models
