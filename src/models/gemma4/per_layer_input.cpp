// SPDX-License-Identifier: Apache-2.0
#include "models/gemma4/per_layer_input.h"

#include <cmath>
#include <memory>
#include <utility>

#include "models/gemma4/gemma4_config.h"
#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::WeightSpec;
using graph::Value;

namespace {

constexpr const char* kInputTable = "embed_tokens_per_layer";
constexpr const char* kInputProjection = "per_layer_model_projection";
constexpr const char* kInputNorm = "per_layer_projection_norm";

// W_out (gelu(W_in x) * i). It is a mixer because only mixers receive LayerInputs, which contain i.
class PerLayerGate final : public Mixer {
 public:
  PerLayerGate(int64_t hidden_size, int64_t width, size_t layer)
      : hidden_size_(hidden_size), width_(width), layer_(layer) {}

  [[nodiscard]] std::string_view scope() const override { return "per_layer."; }

  void add_weights(std::vector<WeightSpec>& specs, const std::string& ours,
                   const std::string& hub) const override {
    add_linear_weights(specs, ours + "gate", {{hub + "per_layer_input_gate", width_}},
                       hidden_size_);
    add_linear_weights(specs, ours + "projection", {{hub + "per_layer_projection", hidden_size_}},
                       width_);
  }

  CacheLayer add_layer(CacheNeeds& /*needs*/) const override { return {}; }

  Value build(graph::GraphBuilder& g, Value x, const LayerInputs& inputs,
              const CacheLayer& /*cache*/) const override {
    const Value gate_and_input = g.concat(linear(g, x, "gate"), inputs.own[layer_]);
    return linear(g, g.gated("gelu_mul", gate_and_input), "projection");
  }

 private:
  int64_t hidden_size_, width_;
  size_t layer_;
};

}  // namespace

PerLayerInputs::PerLayerInputs(const checkpoint::ModelConfig& config)
    : hidden_size_(config.hidden_size),
      num_layers_(config.num_layers),
      width_(config.own.get<Gemma4Config>().per_layer_width),
      vocabulary_(config.own.get<Gemma4Config>().per_layer_vocabulary),
      epsilon_(config.rms_norm_eps) {}

void PerLayerInputs::add_weights(std::vector<WeightSpec>& specs, const std::string& hub) const {
  const Shape table{vocabulary_, num_layers_ * width_};
  specs.push_back({.name = kInputTable,
                   .shape = table,
                   .alternatives = {checkpoint::whole({hub + kInputTable + ".weight", table})},
                   .packing = checkpoint::Packing::kLookedUp});
  add_linear_weights(specs, kInputProjection, {{hub + kInputProjection, num_layers_ * width_}},
                     hidden_size_);
  add_norm_weight(specs, kInputNorm, hub + kInputNorm + ".weight", width_, 0);
}

std::vector<Value> PerLayerInputs::build(graph::GraphBuilder& g, Value ids, Value embedding) const {
  const double root = std::sqrt(static_cast<double>(width_));
  const Value e = g.scale(g.embedding(ids, kInputTable), root);
  const double narrowed = 1 / std::sqrt(static_cast<double>(hidden_size_));
  const Value p =
      g.rms_norm(g.scale(linear(g, embedding, kInputProjection), narrowed), kInputNorm, epsilon_);
  const std::vector<int64_t> widths(static_cast<size_t>(num_layers_), width_);
  std::vector<Value> inputs = g.split(g.scale(g.add(p, e), 1 / std::sqrt(2.0)), widths);
  inputs.resize(widths.size());  // `inputs` is shorter after an error, which the builder has stored
  return inputs;
}

ResidualBlock per_layer_block(const checkpoint::ModelConfig& config, size_t layer) {
  ResidualBlock block{.norm_after = "post_per_layer_input_norm"};
  block.branches.push_back(
      {.mixer = std::make_unique<PerLayerGate>(
           config.hidden_size, config.own.get<Gemma4Config>().per_layer_width, layer),
       .hub_scope = ""});
  return block;
}

}  // namespace heddle::models
