// SPDX-License-Identifier: Apache-2.0
#include "models/qwen3_next/qwen3_next.h"

#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "models/layers/moe_block.h"
#include "models/qwen3_next/gated_attention.h"
#include "models/qwen3_next/gated_delta_net.h"

namespace heddle::models {

namespace {

using checkpoint::LayerKind;
using checkpoint::ModelConfig;
using checkpoint::WeightSpec;
using graph::GraphScope;
using graph::Value;

std::string layer_prefix(int64_t layer) { return fmt::format("layers.{}.", layer); }

class Qwen3Next final : public Model {
 public:
  explicit Qwen3Next(const ModelConfig& config)
      : config_(config),
        rope_(checkpoint::inverse_frequencies(config.rope, config.head_dim)),
        delta_net_{.config = config.linear_attention.value_or(checkpoint::LinearAttentionConfig{}),
                   .hidden_size = config.hidden_size,
                   .epsilon = config.rms_norm_eps},
        attention_{.num_heads = config.num_attention_heads,
                   .num_kv_heads = config.num_key_value_heads,
                   .head_dim = config.head_dim,
                   .hidden_size = config.hidden_size,
                   .epsilon = config.rms_norm_eps,
                   .rope_factor = rope_.attention_factor} {}

  std::vector<WeightSpec> weight_specs() const override {
    std::vector<WeightSpec> specs;
    const int64_t H = config_.hidden_size;
    const int64_t V = config_.vocab_size;
    specs.push_back({.name = "embed_tokens",
                     .shape = {V, H},
                     .alternatives = {checkpoint::whole({"model.embed_tokens.weight", {V, H}})}});
    if (!config_.tie_word_embeddings) {
      specs.push_back({.name = "lm_head",
                       .shape = {V, H},
                       .alternatives = {checkpoint::whole({"lm_head.weight", {V, H}})}});
    }
    add_norm(specs, "norm", "model.norm.weight");
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      const std::string ours = layer_prefix(i);
      const std::string hub = "model." + ours;
      add_norm(specs, ours + "input_layernorm", hub + "input_layernorm.weight");
      add_norm(specs, ours + "post_attention_layernorm", hub + "post_attention_layernorm.weight");
      if (is_linear(i)) {
        delta_net_.add_weights(specs, ours + "linear_attn.", hub + "linear_attn.");
      } else {
        attention_.add_weights(specs, ours + "self_attn.", hub + "self_attn.");
      }
      if (is_moe(i)) {
        add_moe_block_weights(specs, ours + "mlp.", hub + "mlp.", H, *config_.moe);
      } else {
        add_swiglu_mlp_weights(specs, ours + "mlp.", hub + "mlp.", H, config_.intermediate_size);
      }
    }
    return specs;
  }

  std::vector<std::string> ignored_prefixes() const override {
    // The multi-token-prediction head drafts; a plain pass has no use for it. A tied head may be
    // stored.
    std::vector<std::string> prefixes = {"mtp."};
    if (config_.tie_word_embeddings) prefixes.emplace_back("lm_head.");
    return prefixes;
  }

  Result<DerivedWeights> derive_weights(const checkpoint::LoadedWeights& weights) const override {
    DerivedWeights derived;
    Tensor frequencies({static_cast<int64_t>(rope_.inverse.size())}, DType::kF32);
    std::copy(rope_.inverse.begin(), rope_.inverse.end(), frequencies.span<float>().begin());
    derived.emplace_back("inverse_frequencies", std::move(frequencies));
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      if (!is_linear(i)) continue;
      const TensorView& a_log = weights[layer_prefix(i) + "linear_attn.A_log"];
      Tensor decay(a_log.shape, DType::kF32);
      for (int64_t j = 0; j < decay.num_elements(); ++j) {
        decay.span<float>()[static_cast<size_t>(j)] = -std::exp(a_log.as<float>()[j]);
      }
      derived.emplace_back(layer_prefix(i) + "linear_attn.neg_exp_a_log", std::move(decay));
    }
    return derived;
  }

  CacheNeeds cache_needs() const override {
    CacheNeeds needs{.num_kv_layers = config_.num_layers_of(LayerKind::kFullAttention),
                     .num_kv_heads = config_.num_key_value_heads,
                     .head_dim = config_.head_dim,
                     .num_state_layers = config_.num_layers_of(LayerKind::kLinearAttention)};
    if (needs.num_state_layers > 0) {
      const checkpoint::LinearAttentionConfig& linear = delta_net_.config;
      needs.conv_channels = delta_net_.conv_channels();
      needs.conv_width = linear.conv_kernel;
      needs.num_value_heads = linear.num_value_heads;
      needs.value_dim = linear.value_head_dim;
      needs.key_dim = linear.key_head_dim;
    }
    return needs;
  }

  ForwardOutputs build(graph::GraphBuilder& g, const ForwardInputs& inputs) const override {
    ForwardOutputs outputs;
    const Value inverse_frequencies = g.weight("inverse_frequencies");
    Value h = g.embedding(inputs.ids, "embed_tokens");
    int64_t state_layer = 0;
    int64_t kv_layer = 0;
    for (int64_t i = 0; i < config_.num_layers; ++i) {
      outputs.hidden_states.push_back(h);
      const GraphScope layer(g, layer_prefix(i));
      const Value x = g.rms_norm(h, "input_layernorm", config_.rms_norm_eps);
      if (is_linear(i)) {
        const GraphScope mixer(g, "linear_attn.");
        h = g.add(h, delta_net_.build(g, x, state_layer++));
      } else {
        const GraphScope mixer(g, "self_attn.");
        h = g.add(h, attention_.build(g, x, inputs.positions, inverse_frequencies, kv_layer++));
      }
      const Value y = g.rms_norm(h, "post_attention_layernorm", config_.rms_norm_eps);
      const GraphScope mlp(g, "mlp.");
      h = g.add(h, is_moe(i) ? moe_block(g, *config_.moe, y) : swiglu_mlp(g, y));
    }
    h = g.rms_norm(h, "norm", config_.rms_norm_eps);
    outputs.hidden_states.push_back(h);
    outputs.head_rows = g.logit_rows(h);
    outputs.logits = build_head(g, outputs.head_rows);
    return outputs;
  }

  Value build_head(graph::GraphBuilder& g, Value rows) const override {
    return g.linear(rows, config_.tie_word_embeddings ? "embed_tokens" : "lm_head");
  }

 private:
  bool is_linear(int64_t layer) const {
    return config_.layer_kinds[static_cast<size_t>(layer)] == LayerKind::kLinearAttention;
  }

  bool is_moe(int64_t layer) const { return config_.is_moe_layer[static_cast<size_t>(layer)]; }

  void add_norm(std::vector<WeightSpec>& specs, const std::string& ours,
                const std::string& hub) const {
    specs.push_back({.name = ours,
                     .shape = {config_.hidden_size},
                     .alternatives = {checkpoint::whole({hub, {config_.hidden_size}})},
                     .dtype = checkpoint::WeightDType::kF32,
                     .offset = 1});
  }

  ModelConfig config_;
  checkpoint::RopeFrequencies rope_;
  GatedDeltaNet delta_net_;
  GatedAttention attention_;
};

}  // namespace

Result<std::unique_ptr<const Model>> create_qwen3_next(const ModelConfig& config) {
  if (config.attention_bias) {
    return unimplemented(
        "config.json: attention_bias is true; Qwen3-Next is served without biases");
  }
  if (!config.attention_output_gate) {
    return unimplemented(
        "config.json: attn_output_gate is false; Qwen3-Next is served with the gate");
  }
  if (config.rope.type == checkpoint::RopeType::kDynamic) {
    return unimplemented(
        "config.json: rope type \"dynamic\" changes with the sequence; use yarn or linear");
  }
  if (config.quantization_method) {
    return unimplemented(
        fmt::format("config.json: quant_method \"{}\"; Qwen3-Next is served unquantised",
                    *config.quantization_method));
  }
  return std::unique_ptr<const Model>(std::make_unique<Qwen3Next>(config));
}

}  // namespace heddle::models
