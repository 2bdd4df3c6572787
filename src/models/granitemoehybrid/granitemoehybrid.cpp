// SPDX-License-Identifier: Apache-2.0
// Granite 4.0, hybrid (H) and dense: Mamba-2 layers and some attention layers, mostly without
// positions. Every layer has an MLP for all tokens, and most layers also have experts. As in
// Granite 3, constants scale the embedding, each block's output, the attention scores and the
// logits. IBM, "Granite 4.0".
#include <algorithm>

#include "models/gguf_mixers.h"
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
  int64_t shared_size = 0;  // width of the shared MLP
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

// The converter stores the rows of queries and keys for a rotation in pairs, though most models do
// not rotate them.
void translate_granitemoehybrid(GgufTranslation& gguf) {
  translate_transformer(gguf, {.architecture = "GraniteMoeHybridForCausalLM",
                               .pairs_rows = true,
                               .names = {.gate = "shared_mlp.gate_proj",
                                         .up = "shared_mlp.up_proj",
                                         .down = "shared_mlp.output_linear"}});
  translate_factors(gguf);
  const bool rotates = gguf.boolean("rope.scaling.finetuned").value_or(false);
  gguf.set("position_embedding_type", rotates ? "rope" : "nope");
  gguf.set_layer_kinds("layer_types", gguf.layers_with("ssm_in.weight"), "mamba", "attention");
  const int64_t num_heads = std::max<int64_t>(gguf.required("ssm.time_step_rank"), 1);
  gguf.set("mamba_n_heads", num_heads);
  gguf.set("mamba_d_head", gguf.required("ssm.inner_size") / num_heads);
  gguf.set("mamba_expand", gguf.required("ssm.inner_size") /
                               std::max<int64_t>(gguf.required("embedding_length"), 1));
  gguf.set("mamba_d_state", gguf.required("ssm.state_size"));
  gguf.set("mamba_n_groups", gguf.required("ssm.group_count"));
  gguf.set("mamba_d_conv", gguf.required("ssm.conv_kernel"));
  gguf.set("mamba_conv_bias", gguf.has_in_layers("ssm_conv1d.bias"));
  add_gguf_mamba2(gguf, "mamba.");
  const int64_t experts = gguf.integer("expert_count").value_or(0);
  gguf.set("num_local_experts", experts);
  const int64_t width = gguf.same_in_all_layers("feed_forward_length").value_or(0);
  gguf.set("shared_intermediate_size",
           gguf.integer("expert_shared_feed_forward_length").value_or(width));
  if (experts == 0) return;
  gguf.set("num_experts_per_tok", gguf.required("expert_used_count"));
  gguf.in_layers({
      {.stored = "ffn_gate_inp", .hub = "block_sparse_moe.router.layer"},
      {.stored = "ffn_gate_shexp", .hub = "shared_mlp.gate_proj"},
      {.stored = "ffn_up_shexp", .hub = "shared_mlp.up_proj"},
      {.stored = "ffn_down_shexp", .hub = "shared_mlp.output_linear"},
  });
  add_gguf_experts(gguf, "block_sparse_moe.");
}

}  // namespace

Family granitemoehybrid() {
  return {.name = "GraniteMoeHybrid",
          .architectures = {"GraniteMoeHybridForCausalLM"},
          .model_types = {{"granitemoehybrid", "GraniteMoeHybridForCausalLM"}},
          .read_config = read_granitemoehybrid_config,
          .create = create_granitemoehybrid,
          .gguf = {{"granitehybrid", translate_granitemoehybrid}}};
}

}  // namespace heddle::models
