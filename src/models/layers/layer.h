// SPDX-License-Identifier: Apache-2.0
// DecoderLayer: a layer as a list of residual blocks, and the functions that add its weights and
// build it. A block reads the residual stream x [T, H] and writes the next one:
//
//     u  = norm(x)                        x itself where the block has no norm
//     y  = sum over its branches of scale_F F(u)           F: a mixer or a feed-forward block
//     x' = keep x + scale norm_after(y)                    u in the place of x: keeps_normed
//
// The forms that families have, with the fields that are not at their defaults:
//
//     pre       x + F(norm(x))                    norm                     most families
//     post      x + norm(F(x))                    norm_after               OLMo 3, EXAONE 4
//     sandwich  x + norm'(F(norm(x)))             norm, norm_after         Gemma 3 and 4
//     parallel  x + A(norm(x)) + M(norm(x))       two branches             Cohere 2
//     mixers    x + a A(norm(x)) + s S(norm(x))   two branches, scales     Falcon-H1
//     scaled    x + r F(norm(x))                  scale                    Granite
//     normed    a norm(x) + b F(norm(x))          keeps_normed, keep, scale    MiniMax-Text
//     single    one block a layer, a mixer or a feed-forward block         Nemotron-H
//
// Threading: values, used while a model loads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/layers/block.h"
#include "models/layers/linear.h"

namespace heddle::models {

// Exactly one of `mixer` and `feed_forward` is set.
struct Branch {
  std::unique_ptr<const Mixer> mixer = nullptr;
  std::unique_ptr<const FeedForward> feed_forward = nullptr;
  double scale = 1;
  std::optional<std::string> hub_scope = {};  // the hub's name, "mixer."; none: scope()

  // The prefix of our names for the weights of the branch, within the layer: "self_attn.", "mlp.".
  [[nodiscard]] std::string_view scope() const;
};

struct ResidualBlock {
  std::string norm = {};  // hub name within the layer: "input_layernorm"; empty: none
  std::vector<Branch> branches = {};
  std::string norm_after = {};  // hub name within the layer; empty: none
  double scale = 1;
  double keep = 1;
  bool keeps_normed = false;
};

struct DecoderLayer {
  std::vector<ResidualBlock> blocks;

  // Other names that files have for norms of these blocks: ours, the hub's.
  std::vector<std::pair<std::string, std::string>> other_norms = {};

  // The hub's name of a tensor [1] that multiplies the layer's result; empty: none.
  std::string scale = {};
};

// The norms of a layer of two blocks, a mixer's and a feed-forward block's (the table above).
enum class Frame : uint8_t { kPre, kPost, kSandwich, kParallel };

// The layer, with the names that the hub has for its norms in this frame; `scale` is that of every
// block.
DecoderLayer make_layer(Frame frame, Branch mixer, Branch feed_forward, double scale = 1);

// h = x + mixer(input_layernorm(x));  x' = h + feed_forward(post_attention_layernorm(h))
DecoderLayer pre_norm_layer(std::unique_ptr<const Mixer> mixer,
                            std::unique_ptr<const FeedForward> feed_forward);

// The weights of one layer, its norms included. `ours` and `hub` are its prefix: "layers.3.".
void add_layer_weights(std::vector<checkpoint::WeightSpec>& specs, const DecoderLayer& layer,
                       const std::string& ours, const std::string& hub, int64_t hidden_size,
                       const NormForm& norms);

// Mixer::derive_weights() of its mixers, below `ours`, and what its norms compute with.
void derive_layer_weights(const checkpoint::LoadedWeights& weights, const DecoderLayer& layer,
                          const std::string& ours, int64_t hidden_size, const NormForm& norms,
                          DerivedWeights& derived);

// Adds what a sequence keeps of the layer, which the hub names `hub`. Returns what
// Mixer::add_layer() gave for each of its mixers, in order.
std::vector<CacheLayer> add_layer_needs(CacheNeeds& needs, const DecoderLayer& layer,
                                        const std::string& hub);

// The scope of the first branch that serves one rank only: "self_attn."; empty: there is none.
[[nodiscard]] std::string_view branch_of_one_rank(const DecoderLayer& layer);

// x [T, H] -> x' [T, H], within the layer's scope. `cache_layers`: of add_layer_needs().
graph::Value build_layer(graph::GraphBuilder& g, const DecoderLayer& layer, graph::Value x,
                         const LayerInputs& inputs, std::span<const CacheLayer> cache_layers,
                         const NormForm& norms);

}  // namespace heddle::models
