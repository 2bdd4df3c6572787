// SPDX-License-Identifier: Apache-2.0
#include "models/layers/decoder.h"

#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "models/layers/feed_forward.h"
#include "models/layers/linear.h"

namespace heddle::models {

namespace {

using checkpoint::ModelConfig;
using checkpoint::WeightSpec;
using graph::GraphScope;
using graph::Value;

std::string layer_prefix(size_t layer) { return fmt::format("layers.{}.", layer); }

class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, DecoderOptions options, std::vector<DecoderLayer> layers)
      : config_(config), options_(std::move(options)), layers_(std::move(layers)) {
    if (options_.rope_tables.empty()) options_.rope_tables = rope_tables_of(config_);
    for (size_t i = 0; i < layers_.size(); ++i) {
      cache_layers_.push_back(
          add_layer_needs(needs_, layers_[i], options_.hub_prefix + layer_prefix(i)));
    }
  }

  [[nodiscard]] std::vector<WeightSpec> weight_specs() const override {
    std::vector<WeightSpec> specs;
    const Shape table{config_.vocab_size, config_.hidden_size};
    const std::string& root = options_.hub_prefix;
    specs.push_back({.name = "embed_tokens",
                     .shape = table,
                     .alternatives = {checkpoint::whole({root + "embed_tokens.weight", table})},
                     .packing = checkpoint::Packing::kNever,
                     .cut = vocabulary_cut(config_.vocab_size)});
    if (!config_.tie_word_embeddings) {
      add_linear_weights(specs, "lm_head", {{"lm_head", config_.vocab_size}}, config_.hidden_size,
                         vocabulary_cut(config_.vocab_size));
    }
    add_norm_weight(specs, "norm", root + "norm.weight", config_.hidden_size, options_.norm_offset);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const std::string ours = layer_prefix(i);
      add_layer_weights(specs, layers_[i], ours, root + ours, config_, options_.norm_offset);
    }
    return specs;
  }

  [[nodiscard]] std::vector<std::string> ignored_prefixes() const override {
    std::vector<std::string> prefixes = options_.ignored_prefixes;
    if (config_.tie_word_embeddings)
      prefixes.emplace_back("lm_head.");  // may be stored all the same
    return prefixes;
  }

  Result<DerivedWeights> derive_weights(const checkpoint::LoadedWeights& weights) const override {
    DerivedWeights derived;
    derive_rope_tables(options_.rope_tables, "", derived);
    for (size_t i = 0; i < layers_.size(); ++i) {
      derive_layer_weights(weights, layers_[i], layer_prefix(i), derived);
    }
    return derived;
  }

  [[nodiscard]] CacheNeeds cache_needs() const override { return needs_; }

  ForwardOutputs build(graph::GraphBuilder& g, const ForwardInputs& inputs) const override {
    ForwardOutputs outputs;
    const LayerInputs shared{.positions = inputs.positions,
                             .rope_tables = rope_tables(g, options_.rope_tables.size())};
    Value h = g.embedding(inputs.ids, "embed_tokens");
    for (size_t i = 0; i < layers_.size(); ++i) {
      outputs.hidden_states.push_back(h);
      const GraphScope layer(g, layer_prefix(i));
      h = build_layer(g, layers_[i], h, shared, cache_layers_[i], config_.rms_norm_eps);
    }
    h = g.rms_norm(h, "norm", config_.rms_norm_eps);
    outputs.hidden_states.push_back(h);
    outputs.head_rows = g.logit_rows(h);
    outputs.logits = build_head(g, outputs.head_rows);
    return outputs;
  }

  Value build_head(graph::GraphBuilder& g, Value rows) const override {
    return linear(g, rows, config_.tie_word_embeddings ? "embed_tokens" : "lm_head", DType::kF32);
  }

 private:
  ModelConfig config_;
  DecoderOptions options_;
  std::vector<DecoderLayer> layers_;
  std::vector<std::vector<CacheLayer>> cache_layers_;  // of each layer: those of its mixers
  CacheNeeds needs_;
};

}  // namespace

std::unique_ptr<const Model> make_decoder(const ModelConfig& config, DecoderOptions options,
                                          std::vector<DecoderLayer> layers) {
  HEDDLE_CHECK_EQ(static_cast<int64_t>(layers.size()), config.num_layers);
  return std::make_unique<Decoder>(config, std::move(options), std::move(layers));
}

std::vector<DecoderLayer> transformer_layers(const ModelConfig& config,
                                             AttentionOptions attention) {
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    layers.push_back(pre_norm_layer(std::make_unique<Attention>(in_layer(attention, config, i)),
                                    make_feed_forward(config, i)));
  }
  return layers;
}

}  // namespace heddle::models
