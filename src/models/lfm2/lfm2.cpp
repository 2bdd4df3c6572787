// SPDX-License-Identifier: Apache-2.0
// LFM2 and LFM2-MoE: gated short convolutions and, every few layers, grouped-query attention with
// norms of queries and keys. In LFM2-MoE all but the first layers have experts that are chosen by
// corrected sigmoid scores. Liquid AI, "LFM2 Technical Report", arXiv:2511.23404.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "models/gguf_translation.h"
#include "models/layers/decoder.h"
#include "models/layers/expert_config.h"
#include "models/lfm2/short_convolution.h"
#include "models/model.h"

namespace heddle::models {

namespace {

using checkpoint::ConfigReader;
using checkpoint::kWidth;
using checkpoint::LayerKind;
using checkpoint::ModelConfig;

struct Lfm2Config {
  int64_t conv_width = 0;
  bool conv_bias = false;

  bool operator==(const Lfm2Config&) const = default;
};

bool is_lfm2_moe(const ModelConfig& config) { return config.architecture.starts_with("Lfm2Moe"); }

checkpoint::SharedKeys lfm2_keys(ConfigReader& reader) {
  constexpr std::string_view kTied = "tie_word_embeddings", kOldTied = "tie_embedding";
  const bool tied = reader.boolean(kOldTied, true);
  if (reader.has(kTied) && reader.has(kOldTied) && reader.boolean(kTied, true) != tied) {
    reader.fail(kOldTied, "which contradicts tie_word_embeddings");
  }
  return {.norm_epsilon = "norm_eps",
          .default_norm_epsilon = 1e-5,
          .default_tied = tied,
          .default_vocab_size = 65536,
          .default_num_heads = 32,
          .default_num_kv_heads = 8,
          .default_max_positions = 128000};
}

// Reads layer_types or, in older files, full_attn_idxs. A dense model without either key has only
// attention layers.
void read_lfm2_layers(ConfigReader& reader, ModelConfig& config) {
  constexpr std::string_view kList = "full_attn_idxs", kTypes = "layer_types";
  const bool has_list = reader.has(kList);
  std::vector<LayerKind> listed(
      static_cast<size_t>(config.num_layers),
      has_list ? LayerKind::kShortConvolution : LayerKind::kFullAttention);
  for (const int64_t layer : reader.integers(kList, {0, config.num_layers - 1})) {
    listed[static_cast<size_t>(layer)] = LayerKind::kFullAttention;
  }
  if (is_lfm2_moe(config) && !has_list && !reader.has(kTypes)) {
    reader.fail(invalid_argument("layer_types is missing"));
  }
  checkpoint::read_layer_kinds(reader, config,
                               {LayerKind::kShortConvolution, LayerKind::kFullAttention},
                               [&](int64_t layer) { return listed[static_cast<size_t>(layer)]; });
  if (has_list && config.layer_kinds != listed) {
    reader.fail(kList, "which contradicts layer_types");
  }
}

// The MLP's width: two thirds of the file's value, rounded up.
int64_t lfm2_mlp_width(ConfigReader& reader) {
  const int64_t width =
      reader.integer(reader.spelling("block_ff_dim", "intermediate_size"), 12288, kWidth);
  if (!reader.boolean("block_auto_adjust_ff_dim", true)) return width;
  const double factor = reader.number("block_ffn_dim_multiplier", 1.0, {1e-3, 8.0});
  const int64_t unit = reader.integer("block_multiple_of", 256, kWidth);
  const auto scaled = static_cast<int64_t>(factor * static_cast<double>(2 * width / 3));
  return std::max<int64_t>((scaled + unit - 1) / unit, 1) * unit;
}

void read_lfm2_config(ConfigReader& reader, ModelConfig& config) {
  config.rope.theta = 1e6;
  read_lfm2_layers(reader, config);
  config.own.set(Lfm2Config{.conv_width = reader.integer("conv_L_cache", 3, {2, 8}),
                            .conv_bias = reader.boolean("conv_bias", false)});
  if (!is_lfm2_moe(config)) {
    config.intermediate_size = lfm2_mlp_width(reader);
    return;
  }
  config.intermediate_size = reader.integer("intermediate_size", 7168, kWidth);
  const int64_t num_dense = reader.integer("num_dense_layers", 2, {0, checkpoint::kLayers.high});
  for (int64_t i = 0; i < config.num_layers; ++i) config.is_moe_layer.push_back(i >= num_dense);
  checkpoint::MoeConfig moe = read_experts(reader, {.count = {"num_experts", 32},
                                                    .per_token = {"num_experts_per_tok", 4},
                                                    .width = {"moe_intermediate_size", 1792}});
  moe.normalize_top_k = reader.boolean("norm_topk_prob", true);
  moe.router = {.sigmoid = true,
                .corrected = reader.boolean("use_expert_bias", true),
                .scale = reader.number("routed_scaling_factor", 1.0, {-1e6, 1e6}),
                .sum_epsilon = 1e-6};
  if (config.num_moe_layers() > 0) config.moe = moe;
}

std::unique_ptr<const Model> create_lfm2(const ModelConfig& config) {
  const auto& own = config.own.get<Lfm2Config>();
  AttentionOptions attention = attention_options(config);
  attention.qk_norm = QkNorm::kHeads;
  attention.names = {.output = "out_proj", .q_norm = "q_layernorm", .k_norm = "k_layernorm"};
  std::vector<DecoderLayer> layers =
      transformer_layers(config, attention,
                         {.mlp = {.names = {.gate = "w1", .up = "w3", .down = "w2"}},
                          .mlp_scope = "feed_forward.",
                          .moe_scope = "feed_forward."});
  for (size_t i = 0; i < layers.size(); ++i) {
    ResidualBlock& mixer = layers[i].blocks.front();
    mixer.norm = "operator_norm";
    layers[i].blocks.back().norm = "ffn_norm";
    if (config.layer_kinds[i] != LayerKind::kShortConvolution) continue;
    mixer.branches.front().mixer =
        std::make_unique<ShortConvolution>(config.hidden_size, own.conv_width, own.conv_bias);
  }
  return make_decoder(config, {.hub_norm = "embedding_norm"}, std::move(layers));
}

void translate_lfm2_layers(GgufTranslation& gguf, std::string_view architecture) {
  translate_transformer(gguf, {.architecture = architecture,
                               .names = {.input_norm = "operator_norm",
                                         .mlp_norm = "ffn_norm",
                                         .output = "out_proj",
                                         .q_norm = "q_layernorm",
                                         .k_norm = "k_layernorm",
                                         .gate = "feed_forward.w1",
                                         .up = "feed_forward.w3",
                                         .down = "feed_forward.w2"}});
  gguf.copy_number("attention.layer_norm_rms_epsilon", "norm_eps");
  gguf.set_layer_kinds("layer_types", gguf.layers_with("attn_q.weight"), "full_attention", "conv");
  gguf.set("conv_L_cache", gguf.required("shortconv.l_cache"));
  gguf.set("conv_bias", gguf.has_in_layers("shortconv.conv.bias"));
  // In these files the final norm has the name that other architectures use for the norm before the
  // layers.
  gguf.outside({.stored = "token_embd_norm", .hub = "model.embedding_norm"});
  gguf.in_layers({
      {.stored = "shortconv.in_proj", .hub = "conv.in_proj"},
      {.stored = "shortconv.conv", .hub = "conv.conv", .shape = GgufShape::kConvolution},
      {.stored = "shortconv.out_proj", .hub = "conv.out_proj"},
  });
}

void translate_lfm2(GgufTranslation& gguf) {
  translate_lfm2_layers(gguf, "Lfm2ForCausalLM");
  gguf.set("block_auto_adjust_ff_dim", false);  // the file contains the final width, so no
                                                // adjustment is needed
}

void translate_lfm2_moe(GgufTranslation& gguf) {
  translate_lfm2_layers(gguf, "Lfm2MoeForCausalLM");
  gguf.set("num_experts", gguf.required("expert_count"));
  gguf.set("num_experts_per_tok", gguf.required("expert_used_count"));
  gguf.set("moe_intermediate_size", gguf.required("expert_feed_forward_length"));
  gguf.set("num_dense_layers", gguf.required("leading_dense_block_count"));
  gguf.copy_number("expert_weights_scale", "routed_scaling_factor");
  require_sigmoid_scores(gguf);
  gguf.set("use_expert_bias", gguf.has_in_layers("exp_probs_b.bias"));
  gguf.in_layers({{.stored = "ffn_gate_inp", .hub = "feed_forward.gate"}});
  gguf.tensors_in_layers({{.stored = "exp_probs_b.bias", .hub = "feed_forward.expert_bias"}});
  add_gguf_experts(gguf, "feed_forward.", {"w1", "w3", "w2"});
}

}  // namespace

Family lfm2() {
  return {.name = "LFM2",
          .architectures = {"Lfm2ForCausalLM", "Lfm2MoeForCausalLM"},
          .model_types = {{"lfm2", "Lfm2ForCausalLM"}, {"lfm2_moe", "Lfm2MoeForCausalLM"}},
          .shared_keys = lfm2_keys,
          .read_config = read_lfm2_config,
          .create = create_lfm2,
          .tool_call_format = "lfm2",
          .gguf = {{"lfm2", translate_lfm2}, {"lfm2moe", translate_lfm2_moe}}};
}

}  // namespace heddle::models
