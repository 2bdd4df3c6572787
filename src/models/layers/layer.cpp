// SPDX-License-Identifier: Apache-2.0
#include "models/layers/layer.h"

#include <algorithm>
#include <iterator>
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

// Calls visit(name) for every norm of the layer, in order.
template <typename Visit>
void for_each_norm(const DecoderLayer& layer, const Visit& visit) {
  for (const ResidualBlock& block : layer.blocks) {
    for (const std::string& name : {block.norm, block.norm_after}) {
      if (!name.empty()) visit(name);
    }
  }
}

std::string hub_scope(const Branch& branch) {
  return branch.hub_scope.value_or(std::string(branch.scope()));
}

ResidualBlock block_of(Branch branch, double scale) {
  ResidualBlock block{.scale = scale};
  block.branches.push_back(std::move(branch));
  return block;
}

}  // namespace

std::string_view Branch::scope() const { return mixer != nullptr ? mixer->scope() : "mlp."; }

DecoderLayer make_layer(Frame frame, Branch mixer, Branch feed_forward, double scale) {
  constexpr const char* kInput = "input_layernorm";
  constexpr const char* kAfterMixer = "post_attention_layernorm";
  constexpr const char* kAfterFeedForward = "post_feedforward_layernorm";
  DecoderLayer layer;
  layer.blocks.push_back(block_of(std::move(mixer), scale));
  ResidualBlock& first = layer.blocks.front();
  if (frame != Frame::kPost) first.norm = kInput;
  if (frame == Frame::kParallel) {
    first.branches.push_back(std::move(feed_forward));
    return layer;
  }
  if (frame != Frame::kPre) first.norm_after = kAfterMixer;
  layer.blocks.push_back(block_of(std::move(feed_forward), scale));
  ResidualBlock& second = layer.blocks.back();
  if (frame == Frame::kPre) second.norm = kAfterMixer;
  if (frame == Frame::kSandwich) second.norm = "pre_feedforward_layernorm";
  if (frame != Frame::kPre) second.norm_after = kAfterFeedForward;
  return layer;
}

DecoderLayer pre_norm_layer(std::unique_ptr<const Mixer> mixer,
                            std::unique_ptr<const FeedForward> feed_forward) {
  return make_layer(Frame::kPre, {.mixer = std::move(mixer)},
                    {.feed_forward = std::move(feed_forward)});
}

void add_layer_weights(std::vector<WeightSpec>& specs, const DecoderLayer& layer,
                       const std::string& ours, const std::string& hub, int64_t hidden_size,
                       const NormForm& norms) {
  for_each_norm(layer, [&](const std::string& name) {
    std::vector<WeightSpec> weights;
    add_norm_weights(weights, ours + name, hub + name, hidden_size, norms);
    for (const auto& [own, other] : layer.other_norms) {
      if (own != name) continue;
      std::vector<WeightSpec> either;
      std::vector<WeightSpec> others;
      add_norm_weights(others, ours + name, hub + other, hidden_size, norms);
      add_either(either, std::move(weights), std::move(others));
      weights = std::move(either);
    }
    std::ranges::move(weights, std::back_inserter(specs));
  });
  if (!layer.scale.empty()) {
    specs.push_back({.name = ours + layer.scale,
                     .shape = {1},
                     .alternatives = {checkpoint::whole({hub + layer.scale, {1}})},
                     .dtype = checkpoint::WeightDType::kF32,
                     .initial = checkpoint::Initial::kAroundOne});
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
                          const std::string& ours, int64_t hidden_size, const NormForm& norms,
                          DerivedWeights& derived) {
  for_each_norm(layer, [&](const std::string& name) {
    derive_norm_weights(ours + name, hidden_size, norms, derived);
  });
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

std::string_view branch_of_one_rank(const DecoderLayer& layer) {
  for (const ResidualBlock& block : layer.blocks) {
    for (const Branch& branch : block.branches) {
      const bool serves = branch.mixer != nullptr ? branch.mixer->serves_ranks()
                                                  : branch.feed_forward->serves_ranks();
      if (!serves) return branch.scope();
    }
  }
  return {};
}

Value build_layer(graph::GraphBuilder& g, const DecoderLayer& layer, Value x,
                  const LayerInputs& inputs, std::span<const CacheLayer> cache_layers,
                  const NormForm& norms) {
  size_t mixer = 0;
  for (const ResidualBlock& block : layer.blocks) {
    const Value u = block.norm.empty() ? x : norm(g, x, block.norm, norms);
    Value y;
    for (const Branch& branch : block.branches) {
      const GraphScope scope(g, branch.scope());
      const Value result =
          g.scale(branch.mixer != nullptr ? branch.mixer->build(g, u, inputs, cache_layers[mixer++])
                                          : branch.feed_forward->build(g, u),
                  branch.scale);
      y = y.valid() ? g.add(y, result) : result;
    }
    if (!block.norm_after.empty()) y = norm(g, y, block.norm_after, norms);
    x = g.add(g.scale(block.keeps_normed ? u : x, block.keep), g.scale(y, block.scale));
  }
  HEDDLE_CHECK_EQ(mixer, cache_layers.size());
  return layer.scale.empty() ? x : g.mul(x, g.weight(layer.scale));
}

}  // namespace heddle::models
