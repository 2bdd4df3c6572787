// SPDX-License-Identifier: Apache-2.0
#include "models/drafts/prediction_head.h"

#include <utility>

#include <fmt/format.h>

#include "models/layers/linear.h"
#include "models/layers/rope_table.h"

namespace heddle::models {

namespace {

using checkpoint::ModelConfig;
using checkpoint::WeightSpec;
using graph::GraphScope;
using graph::Value;

class PredictionHead final : public DraftModel {
 public:
  PredictionHead(const ModelConfig& config, std::vector<PredictionHeadNames> names,
                 DecoderLayer layer, float norm_offset)
      : config_(config),
        names_(std::move(names)),
        layer_(std::move(layer)),
        norm_offset_(norm_offset) {
    cache_layers_ = add_layer_needs(needs_, layer_, names_.front().layer);
  }

  [[nodiscard]] std::vector<WeightSpec> weight_specs() const override {
    std::vector<WeightSpec> specs = specs_of(names_.front());
    for (size_t i = 1; i < names_.size(); ++i) {
      std::vector<WeightSpec> all;
      add_either(all, std::move(specs), specs_of(names_[i]));
      specs = std::move(all);
    }
    return specs;
  }

  Result<DerivedWeights> derive_weights(const checkpoint::LoadedWeights& weights) const override {
    DerivedWeights derived;
    derive_layer_weights(weights, layer_, std::string(kDraftScope) + "layer.", config_.hidden_size,
                         norms(), derived);
    return derived;
  }

  [[nodiscard]] CacheNeeds cache_needs() const override { return needs_; }

  // The target's vector after its final norm.
  [[nodiscard]] std::vector<int64_t> hidden_states() const override { return {config_.num_layers}; }

  DraftOutputs build_first(graph::GraphBuilder& g, const DraftInputs& inputs) const override {
    return build(g, inputs);
  }

  DraftOutputs build_next(graph::GraphBuilder& g, const DraftInputs& inputs) const override {
    return build(g, inputs);
  }

 private:
  [[nodiscard]] NormForm norms() const {
    return {.epsilon = config_.rms_norm_eps, .offset = norm_offset_};
  }

  [[nodiscard]] std::vector<WeightSpec> specs_of(const PredictionHeadNames& names) const {
    std::vector<WeightSpec> specs;
    const std::string ours = kDraftScope;
    const int64_t width = config_.hidden_size;
    add_linear_weights(specs, ours + "projection", {{names.projection, width}}, 2 * width);
    const auto add_norm = [&](const std::string& name, const std::string& hub) {
      add_norm_weight(specs, ours + name, hub + ".weight", width, norm_offset_);
    };
    add_norm("embedding_norm", names.embedding_norm);
    add_norm("hidden_norm", names.hidden_norm);
    add_norm("norm", names.final_norm);
    add_layer_weights(specs, layer_, ours + "layer.", names.layer, width, norms());
    return specs;
  }

  DraftOutputs build(graph::GraphBuilder& g, const DraftInputs& inputs) const {
    const double epsilon = config_.rms_norm_eps;
    const LayerInputs shared{.positions = inputs.positions,
                             .rope_tables = rope_tables(g, 1),
                             .query_scale = query_scale(g, config_.rope, inputs.positions)};
    const Value embedding = g.embedding(inputs.ids, "embed_tokens");
    DraftOutputs outputs;
    {
      const GraphScope scope(g, kDraftScope);
      const Value e = g.rms_norm(embedding, "embedding_norm", epsilon);
      const Value h = g.rms_norm(inputs.vectors.front(), "hidden_norm", epsilon);
      Value x = linear(g, g.concat(e, h), "projection");
      {
        const GraphScope layer(g, "layer.");
        x = build_layer(g, layer_, x, shared, cache_layers_, norms());
      }
      outputs.vector = g.logit_rows(g.rms_norm(x, "norm", epsilon));
    }
    outputs.logits = linear(g, outputs.vector,
                            config_.tie_word_embeddings ? "embed_tokens" : "lm_head", DType::kF32);
    return outputs;
  }

  ModelConfig config_;
  std::vector<PredictionHeadNames> names_;
  DecoderLayer layer_;
  float norm_offset_;
  CacheNeeds needs_;
  std::vector<CacheLayer> cache_layers_;
};

}  // namespace

PredictionHeadNames nextn_names(int64_t layer) {
  const std::string prefix = fmt::format("model.layers.{}.", layer);
  return {.layer = prefix,
          .projection = prefix + "eh_proj",
          .embedding_norm = prefix + "enorm",
          .hidden_norm = prefix + "hnorm",
          .final_norm = prefix + "shared_head.norm"};
}

std::unique_ptr<const DraftModel> make_prediction_head(const ModelConfig& config,
                                                       std::vector<PredictionHeadNames> names,
                                                       DecoderLayer layer, float norm_offset) {
  return std::make_unique<PredictionHead>(config, std::move(names), std::move(layer), norm_offset);
}

}  // namespace heddle::models
