// SPDX-License-Identifier: Apache-2.0
// Gemma 4. Norms are where Gemma 3 has them, and values are normalised, too. Full-attention layers
// have other head widths and numbers of heads than sliding ones, and rotate the first quarter of
// each head. Some models add experts to the MLP (gemma4_experts.h), let their last layers read
// the keys and values of earlier layers, or give every layer an embedding of the token's id
// (per_layer_input.h).
//
// Checkpoints with vision or audio towers are served as text models: the towers are ignored.
#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "models/gemma4/gemma4_config.h"
#include "models/gemma4/gemma4_experts.h"
#include "models/gemma4/gemma4_gguf.h"
#include "models/gemma4/per_layer_input.h"
#include "models/layers/decoder.h"
#include "models/layers/gemma.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::LayerKind;
using checkpoint::ModelConfig;

int64_t num_owning_layers(const ModelConfig& config) {
  return config.num_layers - config.own.get<Gemma4Config>().num_kv_shared_layers;
}

// The last layer of the same kind that computes its own keys and values; later layers read these.
int64_t source_of(const ModelConfig& config, int64_t layer) {
  int64_t source = num_owning_layers(config) - 1;
  const auto kind = [&](int64_t i) { return config.layer_kinds[static_cast<size_t>(i)]; };
  while (kind(source) != kind(layer)) --source;
  return source;
}

AttentionOptions attention_of_gemma4(const ModelConfig& config, int64_t layer) {
  const auto& own = config.own.get<Gemma4Config>();
  AttentionOptions attention = in_layer(attention_options(config), config, layer);
  const bool slides = attention.window > 0;
  const Gemma4Heads& heads = slides ? own.sliding : own.full;
  attention.head_dim = heads.head_dim;
  attention.num_kv_heads = heads.num_kv_heads;
  attention.qk_norm = QkNorm::kHeads;
  attention.value_norm = true;
  attention.keys_are_values = own.keys_are_values && !slides;
  attention.softmax_scale = 1;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  if (layer >= num_owning_layers(config)) attention.reads_pages = source_of(config, layer);
  return attention;
}

std::unique_ptr<const FeedForward> feed_forward_of(const ModelConfig& config, int64_t layer) {
  const MlpOptions options{.activation = GatedActivation::kGelu};
  if (config.moe) return std::make_unique<Gemma4Experts>(config, options);
  const bool doubled =
      config.own.get<Gemma4Config>().doubles_shared_mlps && layer >= num_owning_layers(config);
  return std::make_unique<GatedMlp>(config.hidden_size,
                                    (doubled ? 2 : 1) * config.intermediate_size, options);
}

DecoderLayer layer_of_gemma4(const ModelConfig& config, int64_t i) {
  Branch feed_forward{.feed_forward = feed_forward_of(config, i)};
  if (config.moe) feed_forward.hub_scope = "";
  DecoderLayer layer = make_layer(
      Frame::kSandwich, {.mixer = std::make_unique<Attention>(attention_of_gemma4(config, i))},
      std::move(feed_forward));
  if (config.moe) layer.blocks.back().norm = "";  // each branch of the block has its own norms
  if (config.own.get<Gemma4Config>().per_layer_width > 0) {
    layer.blocks.push_back(per_layer_block(config, static_cast<size_t>(i)));
  }
  layer.scale = "layer_scalar";
  return layer;
}

// Ignores stored keys and values of layers that read those of earlier layers.
void ignore_unused_keys(const ModelConfig& config, DecoderOptions& options) {
  for (int64_t i = num_owning_layers(config); i < config.num_layers; ++i) {
    for (const char* name : {"k_proj.", "v_proj.", "k_norm.", "v_norm."}) {
      options.ignored_prefixes.push_back(
          fmt::format("{}layers.{}.self_attn.{}", options.hub_prefix, i, name));
    }
  }
}

std::unique_ptr<const Model> create_gemma4(const ModelConfig& config) {
  const auto& own = config.own.get<Gemma4Config>();
  DecoderOptions options{.rope_tables = {{config.rope, own.full.head_dim}},
                         .embedding_scale = gemma_embedding_scale(config),
                         .logit_softcap = own.logit_softcap};
  if (config.sliding_rope) {
    options.rope_tables.push_back({*config.sliding_rope, own.sliding.head_dim});
  }
  if (own.per_layer_width > 0) options.shared_inputs = std::make_unique<PerLayerInputs>(config);
  use_vision_names(config, options);
  ignore_unused_keys(config, options);
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) layers.push_back(layer_of_gemma4(config, i));
  return make_decoder(config, std::move(options), std::move(layers));
}

}  // namespace

Family gemma4() {
  return {.name = "Gemma 4",
          .architectures = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"},
          .model_types = {{"gemma4_text", "Gemma4ForCausalLM"},
                          {"gemma4", "Gemma4ForConditionalGeneration"}},
          .shared_keys = gemma_keys,
          .read_config = read_gemma4_config,
          .create = create_gemma4,
          .gguf = {{"gemma4", translate_gemma4}}};
}

}  // namespace heddle::models
