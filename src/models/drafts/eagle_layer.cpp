// SPDX-License-Identifier: Apache-2.0
#include "models/drafts/eagle_layer.h"

#include "models/layers/linear.h"
#include "models/layers/rope_table.h"

namespace heddle::models {

namespace {

using graph::GraphScope;
using graph::Value;

constexpr const char* kNorm = "post_attention_layernorm";

Attention attention_of(const checkpoint::ModelConfig& config, int64_t input_size, bool qkv_bias) {
  AttentionOptions options = attention_options(config);
  options.input_size = input_size;
  options.qkv_bias = config.attention_bias || qkv_bias;
  options.output_bias = config.attention_bias;
  return Attention(options);
}

}  // namespace

EagleLayer::EagleLayer(const checkpoint::ModelConfig& config, int64_t input_size, bool qkv_bias)
    : config_(config),
      attention_(attention_of(config, input_size, qkv_bias)),
      mlp_(config.hidden_size, config.intermediate_size) {}

void EagleLayer::add_weights(std::vector<checkpoint::WeightSpec>& specs,
                             const std::string& hub) const {
  const std::string ours = kDraftScope;
  add_norm_weight(specs, ours + kNorm, hub + kNorm + ".weight", config_.hidden_size, 0);
  attention_.add_weights(specs, ours + "self_attn.", hub + "self_attn.");
  mlp_.add_weights(specs, ours + "mlp.", hub + "mlp.");
}

DerivedWeights EagleLayer::derive_weights() const {
  DerivedWeights derived;
  derive_rope_tables({{{config_.rope, config_.head_dim}}}, kDraftScope, derived);
  return derived;
}

CacheNeeds EagleLayer::cache_needs(const std::string& hub) const {
  CacheNeeds needs;
  attention_.add_layer(needs);
  needs.kv_modules.emplace_back(hub + "self_attn.");
  return needs;
}

Value EagleLayer::build(graph::GraphBuilder& g, Value in, Value h, Value positions) const {
  const LayerInputs shared{.positions = positions,
                           .rope_tables = rope_tables(g, 1),
                           .query_scale = query_scale(g, config_.rope, positions)};
  Value x;
  {
    const GraphScope scope(g, attention_.scope());
    x = g.add(h, attention_.build(g, in, shared, CacheLayer{.pages = 0}));
  }
  const Value normed = g.rms_norm(x, kNorm, config_.rms_norm_eps);
  const GraphScope scope(g, "mlp.");
  return g.add(x, mlp_.build(g, normed));
}

}  // namespace heddle::models
