// SPDX-License-Identifier: Apache-2.0
#include "models/layers/layer.h"

#include <utility>

#include "core/check.h"
#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::WeightSpec;
using graph::GraphScope;
using graph::Value;

namespace {

// Calls visit(branch) for every mixer of the layer, in order.
template <typename Visit>
void for_each_mixer(const DecoderLayer& layer, const Visit& visit) {
  for (const ResidualBlock& block : layer.blocks) {
    for (const Branch& branch : block.branches) {
      if (branch.mixer != nullptr) visit(branch);
    }
  }
}

std::string hub_scope(const Branch& branch) {
  return branch.hub_scope.empty() ? std::string(branch.scope()) : branch.hub_scope;
}

ResidualBlock pre_norm(std::string norm, Branch branch) {
  ResidualBlock block{.norm = std::move(norm)};
  block.branches.push_back(std::move(branch));
  return block;
}

}  // namespace

std::string_view Branch::scope() const { return mixer != nullptr ? mixer->scope() : "mlp."; }

DecoderLayer pre_norm_layer(std::unique_ptr<const Mixer> mixer,
                            std::unique_ptr<const FeedForward> feed_forward) {
  DecoderLayer layer;
  layer.blocks.push_back(pre_norm("input_layernorm", {.mixer = std::move(mixer)}));
  layer.blocks.push_back(
      pre_norm("post_attention_layernorm", {.feed_forward = std::move(feed_forward)}));
  return layer;
}

void add_layer_weights(std::vector<WeightSpec>& specs, const DecoderLayer& layer,
                       const std::string& ours, const std::string& hub,
                       const checkpoint::ModelConfig& config, float norm_offset) {
  for (const ResidualBlock& block : layer.blocks) {
    for (const std::string& norm : {block.norm, block.norm_after}) {
      if (norm.empty()) continue;
      add_norm_weight(specs, ours + norm, hub + norm + ".weight", config.hidden_size, norm_offset);
    }
  }
  for (const ResidualBlock& block : layer.blocks) {
    for (const Branch& branch : block.branches) {
      HEDDLE_CHECK((branch.mixer == nullptr) != (branch.feed_forward == nullptr));
      const std::string our_scope = ours + std::string(branch.scope());
      const std::string their_scope = hub + hub_scope(branch);
      if (branch.mixer != nullptr) {
        branch.mixer->add_weights(specs, our_scope, their_scope);
      } else {
        branch.feed_forward->add_weights(specs, our_scope, their_scope);
      }
    }
  }
}

void derive_layer_weights(const checkpoint::LoadedWeights& weights, const DecoderLayer& layer,
                          const std::string& ours, DerivedWeights& derived) {
  for_each_mixer(layer, [&](const Branch& branch) {
    branch.mixer->derive_weights(weights, ours + std::string(branch.scope()), derived);
  });
}

std::vector<CacheLayer> add_layer_needs(CacheNeeds& needs, const DecoderLayer& layer,
                                        const std::string& hub) {
  std::vector<CacheLayer> cache_layers;
  for_each_mixer(layer, [&](const Branch& branch) {
    const int64_t before = needs.num_kv_layers();
    cache_layers.push_back(branch.mixer->add_layer(needs));
    if (needs.num_kv_layers() > before) needs.kv_modules.push_back(hub + hub_scope(branch));
    HEDDLE_CHECK_EQ(std::ssize(needs.kv_modules), needs.num_kv_layers());
  });
  return cache_layers;
}

Value build_layer(graph::GraphBuilder& g, const DecoderLayer& layer, Value x,
                  const LayerInputs& inputs, std::span<const CacheLayer> cache_layers,
                  double epsilon) {
  size_t mixer = 0;
  for (const ResidualBlock& block : layer.blocks) {
    const Value u = block.norm.empty() ? x : g.rms_norm(x, block.norm, epsilon);
    Value y;
    for (const Branch& branch : block.branches) {
      const GraphScope scope(g, branch.scope());
      const Value result =
          g.scale(branch.mixer != nullptr ? branch.mixer->build(g, u, inputs, cache_layers[mixer++])
                                          : branch.feed_forward->build(g, u),
                  branch.scale);
      y = y.valid() ? g.add(y, result) : result;
    }
    if (!block.norm_after.empty()) y = g.rms_norm(y, block.norm_after, epsilon);
    x = g.add(g.scale(block.keeps_normed ? u : x, block.keep), g.scale(y, block.scale));
  }
  HEDDLE_CHECK_EQ(mixer, cache_layers.size());
  return x;
}

}  // namespace heddle::models
