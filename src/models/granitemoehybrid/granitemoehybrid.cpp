// SPDX-License-Identifier: Apache-2.0
// Granite 4.0, H and dense: layers of Mamba-2 and some of attention, which mostly has no positions.
// Each has an MLP that every token passes, most have experts, too. As in Granite 3, constants scale
// the embedding, what a block adds, the attention scores and the logits. IBM, "Granite 4.0".
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/layers/mamba2.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

struct GraniteMoeHybridConfig {
  Mamba2Config mamba;
  int64_t shared_size = 0;  // width of the MLP that every token passes
  bool rotates = false;
  double embedding_multiplier = 1;
  double residual_multiplier = 1;
  double attention_multiplier = 1;
  double logits_scaling = 1;

  bool operator==(const GraniteMoeHybridConfig&) const = default;
};

void read_granitemoehybrid_config(ConfigReader& reader, ModelConfig& config) {
  const auto factor = [&](const char* key, double least) {
    return reader.number(key, 1.0, {least, 1e6});
  };
  checkpoint::read_layer_kinds(reader, config,
                               {LayerKind::kLinearAttention, LayerKind::kFullAttention},
                               [](int64_t) { return LayerKind::kLinearAttention; });
  GraniteMoeHybridConfig own{
      .shared_size = reader.integer("shared_intermediate_size", 1024, checkpoint::kWidth),
      .rotates = reader.text("position_embedding_type", std::string()) == "rope",
      .embedding_multiplier = factor("embedding_multiplier", -1e6),
      .residual_multiplier = factor("residual_multiplier", -1e6),
      .attention_multiplier = factor("attention_multiplier", -1e6),
      .logits_scaling = factor("logits_scaling", 1e-6)};
  if (config.num_layers_of(LayerKind::kLinearAttention) > 0) {
    own.mamba = read_mamba2(reader, config);
  }
  config.own.set(own);
  config.attention_bias = reader.boolean("attention_bias", false);
  if (reader.integer("num_local_experts", 8, {0, checkpoint::kExperts.high}) == 0) {
    config.intermediate_size = own.shared_size;
    return;
  }
  config.is_moe_layer.assign(static_cast<size_t>(config.num_layers), true);
  config.moe = read_experts(reader, {.count = {"num_local_experts", 8},
                                     .per_token = {"num_experts_per_tok", 2},
                                     .width = {"intermediate_size", 11008}});
  config.moe->router_name = "router.layer";
}

ResidualBlock granitemoehybrid_feed_forward(const ModelConfig& config,
                                            const GraniteMoeHybridConfig& own) {
  ResidualBlock block{.norm = "post_attention_layernorm", .scale = own.residual_multiplier};
  if (config.moe) {
    block.branches.push_back(
        {.feed_forward = std::make_unique<SparseMoe>(config.hidden_size, *config.moe),
         .hub_scope = "block_sparse_moe."});
  }
  const MlpOptions fused{.is_fused = true,
                         .names = {.down = "output_linear", .fused = "input_linear"}};
  block.branches.push_back(
      {.feed_forward = std::make_unique<GatedMlp>(config.hidden_size, own.shared_size, fused),
       .hub_scope = "shared_mlp."});
  return block;
}

std::unique_ptr<const Model> create_granitemoehybrid(const ModelConfig& config) {
  const auto& own = config.own.get<GraniteMoeHybridConfig>();
  AttentionOptions attention = attention_options(config);
  attention.softmax_scale = own.attention_multiplier;
  attention.qkv_bias = config.attention_bias;
  attention.output_bias = config.attention_bias;
  if (!own.rotates) attention.rope_table.reset();
  std::vector<DecoderLayer> layers;
  for (const LayerKind kind : config.layer_kinds) {
    Branch mixer;
    if (kind == LayerKind::kFullAttention) {
      mixer.mixer = std::make_unique<Attention>(attention);
    } else {
      mixer.mixer = std::make_unique<Mamba2>(own.mamba, config.hidden_size,
                                             Mamba2Options{.epsilon = config.rms_norm_eps});
    }
    ResidualBlock mixing{.norm = "input_layernorm", .scale = own.residual_multiplier};
    mixing.branches.push_back(std::move(mixer));
    DecoderLayer layer;
    layer.blocks.push_back(std::move(mixing));
    layer.blocks.push_back(granitemoehybrid_feed_forward(config, own));
    layers.push_back(std::move(layer));
  }
  return make_decoder(
      config, {.embedding_scale = own.embedding_multiplier, .logit_scale = 1 / own.logits_scaling},
      std::move(layers));
}

}  // namespace

Family granitemoehybrid() {
  return {.name = "GraniteMoeHybrid",
          .architectures = {"GraniteMoeHybridForCausalLM"},
          .model_types = {{"granitemoehybrid", "GraniteMoeHybridForCausalLM"}},
          .read_config = read_granitemoehybrid_config,
          .create = create_granitemoehybrid};
}

}  // namespace heddle::models
