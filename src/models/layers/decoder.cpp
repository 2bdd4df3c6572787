// SPDX-License-Identifier: Apache-2.0
#include "models/layers/decoder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/check.h"
#include "models/layers/linear.h"

namespace heddle::models {

namespace {

using checkpoint::ModelConfig;
using checkpoint::WeightSpec;
using graph::GraphScope;
using graph::Value;

constexpr const char* kEmbeddingNorm = "embedding_norm";

std::string layer_prefix(size_t layer) { return fmt::format("layers.{}.", layer); }

class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, DecoderOptions options, std::vector<DecoderLayer> layers)
      : config_(config), options_(std::move(options)), layers_(std::move(layers)) {
    if (options_.rope_tables.empty()) options_.rope_tables = rope_tables_of(config_);
    CacheNeeds needs;
    for (size_t i = 0; i < layers_.size(); ++i) cache_layers_.push_back(add_needs(needs, i));
  }

  [[nodiscard]] std::vector<WeightSpec> weight_specs() const override {
    std::vector<WeightSpec> specs =
        specs_of({.prefix = options_.hub_prefix, .head = options_.hub_head});
    for (const DecoderNames& names : options_.other_names) {
      std::vector<WeightSpec> all;
      add_either(all, std::move(specs), specs_of(names));
      specs = std::move(all);
    }
    return specs;
  }

  [[nodiscard]] std::vector<std::string> ignored_prefixes() const override {
    std::vector<std::string> prefixes = options_.ignored_prefixes;
    if (!config_.tie_word_embeddings) return prefixes;
    prefixes.push_back(options_.hub_head + ".");  // files may store a head although embeddings are
                                                  // tied
    for (const DecoderNames& names : options_.other_names) prefixes.push_back(names.head + ".");
    return prefixes;
  }

  Result<DerivedWeights> derive_weights(const checkpoint::LoadedWeights& weights) const override {
    DerivedWeights derived;
    derive_rope_tables(options_.rope_tables, "", derived);
    derive_rope_axes(config_, derived);
    for (size_t i = 0; i < layers_.size(); ++i) {
      derive_layer_weights(weights, layers_[i], layer_prefix(i), config_.hidden_size, norms(),
                           derived);
    }
    derive_norm_weights("norm", config_.hidden_size, norms(), derived);
    if (options_.norms_embedding) {
      derived.emplace_back(kEmbeddingNorm, unit_norm(config_.hidden_size));
    }
    return derived;
  }

  using Model::cache_needs;

  [[nodiscard]] CacheNeeds cache_needs(const checkpoint::Rank& rank) const override {
    CacheNeeds needs{.rank = rank};
    for (size_t i = 0; i < layers_.size(); ++i) (void)add_needs(needs, i);
    return needs;
  }

  [[nodiscard]] std::string parts_of_one_rank() const override {
    if (options_.shared_inputs != nullptr) return "what all layers read";
    for (size_t i = 0; i < layers_.size(); ++i) {
      const std::string_view branch = branch_of_one_rank(layers_[i]);
      if (branch.empty()) continue;
      return layer_prefix(i) + std::string(branch.substr(0, branch.size() - 1));
    }
    return {};
  }

  ForwardOutputs build(graph::GraphBuilder& g, const ForwardInputs& inputs) const override {
    ForwardOutputs outputs;
    LayerInputs shared{.positions = inputs.positions,
                       .rope_tables = rope_tables(g, options_.rope_tables.size()),
                       .query_scale = query_scale(g, config_.rope, inputs.positions)};
    Value h = g.scale(g.embedding(inputs.ids, "embed_tokens"), options_.embedding_scale);
    const std::vector<Value> features = picture_features(g, inputs.pictures);
    if (!features.empty()) {
      shared.axis_positions = inputs.pictures.positions;
      shared.axes = g.weight("axes");
      h = g.apply1("place_rows", {h, inputs.pictures.rows, features[0]});
    }
    if (options_.norms_embedding) h = g.rms_norm(h, kEmbeddingNorm, config_.rms_norm_eps);
    if (options_.shared_inputs != nullptr) {
      shared.own = options_.shared_inputs->build(g, inputs.ids, h);
    }
    for (size_t i = 0; i < layers_.size(); ++i) {
      outputs.hidden_states.push_back(h);
      const GraphScope layer(g, layer_prefix(i));
      h = build_layer(g, layers_[i], h, shared, cache_layers_[i], norms());
      if (i + 1 < features.size()) {
        h = g.apply1("add_placed_rows", {h, inputs.pictures.rows, features[i + 1]});
      }
    }
    h = norm(g, h, "norm", norms());
    outputs.hidden_states.push_back(h);
    outputs.head_rows = g.logit_rows(h);
    outputs.logits = build_head(g, outputs.head_rows);
    return outputs;
  }

  Value build_head(graph::GraphBuilder& g, Value rows) const override {
    const bool tied = config_.tie_word_embeddings;
    const Value logits = g.scale(
        vocabulary_linear(g, rows, tied ? "embed_tokens" : "lm_head", config_.vocab_size, tied),
        options_.logit_scale);
    if (options_.logit_softcap == 0) return logits;
    return g.apply1("softcap", {logits}, {{"factor", options_.logit_softcap}});
  }

 private:
  // The features that replace embeddings, then those for each of the first layers. Empty if the
  // program accepts text only.
  [[nodiscard]] std::vector<Value> picture_features(graph::GraphBuilder& g,
                                                    const PictureInputs& pictures) const {
    if (!pictures.features.valid()) return {};
    const int64_t width = g.meta(pictures.features)[1].offset, H = config_.hidden_size;
    if (width == H) return {pictures.features};
    return g.split(pictures.features,
                   std::vector<int64_t>(static_cast<size_t>(std::max<int64_t>(width / H, 1)), H));
  }

  [[nodiscard]] NormForm norms() const {
    return {.kind = options_.norm_kind,
            .epsilon = config_.rms_norm_eps,
            .offset = options_.norm_offset};
  }

  std::vector<CacheLayer> add_needs(CacheNeeds& needs, size_t layer) const {
    return add_layer_needs(needs, layers_[layer], options_.hub_prefix + layer_prefix(layer));
  }

  [[nodiscard]] std::vector<WeightSpec> specs_of(const DecoderNames& names) const {
    std::vector<WeightSpec> specs;
    const Shape table{config_.vocab_size, config_.hidden_size};
    const std::string& root = names.prefix;
    std::vector<checkpoint::Assembly> embeddings;
    for (const std::string& name : options_.hub_embeddings) {
      embeddings.push_back(checkpoint::whole({root + name + ".weight", table}));
    }
    specs.push_back({.name = "embed_tokens",
                     .shape = table,
                     .alternatives = std::move(embeddings),
                     .packing = checkpoint::Packing::kLookedUp});
    if (!config_.tie_word_embeddings) {
      add_linear_weights(specs, "lm_head", {{names.head, config_.vocab_size}}, config_.hidden_size,
                         vocabulary_cut(config_.vocab_size), options_.head_bias);
    }
    add_norm_weights(specs, "norm", root + options_.hub_norm, config_.hidden_size, norms());
    if (options_.shared_inputs != nullptr) options_.shared_inputs->add_weights(specs, root);
    for (size_t i = 0; i < layers_.size(); ++i) {
      add_layer_weights(specs, layers_[i], layer_prefix(i),
                        fmt::format("{}{}{}.", root, names.layers, i), config_.hidden_size,
                        norms());
    }
    return specs;
  }

  ModelConfig config_;
  DecoderOptions options_;
  std::vector<DecoderLayer> layers_;
  // By layer: those of its mixers. They are those of every rank.
  std::vector<std::vector<CacheLayer>> cache_layers_;
};

}  // namespace

std::unique_ptr<const Model> make_decoder(const ModelConfig& config, DecoderOptions options,
                                          std::vector<DecoderLayer> layers) {
  HEDDLE_CHECK_EQ(static_cast<int64_t>(layers.size()), config.num_layers);
  return std::make_unique<Decoder>(config, std::move(options), std::move(layers));
}

DecoderLayer transformer_layer(const ModelConfig& config, const AttentionOptions& attention,
                               const LayerOptions& options, int64_t layer) {
  const bool has_experts = config.is_moe_layer[static_cast<size_t>(layer)];
  Branch feed_forward{.feed_forward = make_feed_forward(config, layer, options.mlp),
                      .hub_scope = has_experts ? options.moe_scope : options.mlp_scope};
  return make_layer(options.frame, {.mixer = std::make_unique<Attention>(attention)},
                    std::move(feed_forward), options.residual_scale);
}

std::vector<DecoderLayer> transformer_layers(const ModelConfig& config,
                                             const AttentionOptions& attention,
                                             const LayerOptions& options) {
  std::vector<DecoderLayer> layers;
  for (int64_t i = 0; i < config.num_layers; ++i) {
    layers.push_back(transformer_layer(config, in_layer(attention, config, i), options, i));
  }
  return layers;
}

}  // namespace heddle::models
