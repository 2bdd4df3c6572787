// SPDX-License-Identifier: Apache-2.0
// DecoderLayer: a layer as a list of residual blocks, and the functions that add its weights and
// build it. A block reads the residual stream x [T, H] and writes the next one:
//
//     u  = norm(x)                        u = x if the block has no norm
//     y  = sum over its branches of scale_F F(u)           F: a mixer or a feed-forward block
//     x' = keep x + scale norm_after(y)                    with keeps_normed: u for x
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
  std::optional<std::string> hub_scope = {};  // prefix of the hub's names: "mixer."; none: scope()

  // The prefix of our names for the branch's weights within the layer: "self_attn.", "mlp.".
  [[nodiscard]] std::string_view scope() const;
};

struct ResidualBlock {
  std::string norm = {};  // hub name of the norm, within the layer: "input_layernorm"; empty: the
                          // block has no norm
  std::vector<Branch> branches = {};
  std::string norm_after = {};  // hub name of the norm after the block, within the layer; empty:
                                // there is none
  double scale = 1;
  double keep = 1;
  bool keeps_normed = false;
};

struct DecoderLayer {
  std::vector<ResidualBlock> blocks;

  // Alternative hub names of these norms, as pairs (our name, hub name).
  std::vector<std::pair<std::string, std::string>> other_norms = {};

  // The hub's name of a tensor [1] that multiplies the layer's result; empty: there is none.
  std::string scale = {};
};

// Where the norms are in a layer with a mixer block and a feed-forward block (see the table above).
enum class Frame : uint8_t { kPre, kPost, kSandwich, kParallel };

// A layer with the hub's usual names for the norms of this frame; `scale` is the scale of each
// block.
DecoderLayer make_layer(Frame frame, Branch mixer, Branch feed_forward, double scale = 1);

// h = x + mixer(input_layernorm(x));  x' = h + feed_forward(post_attention_layernorm(h))
DecoderLayer pre_norm_layer(std::unique_ptr<const Mixer> mixer,
                            std::unique_ptr<const FeedForward> feed_forward);

// Adds the weights of one layer, its norms included. `ours` and `hub` are prefixes: "layers.3.".
void add_layer_weights(std::vector<checkpoint::WeightSpec>& specs, const DecoderLayer& layer,
                       const std::string& ours, const std::string& hub, int64_t hidden_size,
                       const NormForm& norms);

// Adds the results of Mixer::derive_weights() of all mixers, named below `ours`, and the weights
// that norms without a stored weight use.
void derive_layer_weights(const checkpoint::LoadedWeights& weights, const DecoderLayer& layer,
                          const std::string& ours, int64_t hidden_size, const NormForm& norms,
                          DerivedWeights& derived);

// Adds the memory that a sequence needs for the layer, whose hub prefix is `hub`. Returns the
// results of Mixer::add_layer() of all its mixers, in order.
std::vector<CacheLayer> add_layer_needs(CacheNeeds& needs, const DecoderLayer& layer,
                                        const std::string& hub);

// The scope of the first branch that serves one rank only: "self_attn."; empty: there is none.
[[nodiscard]] std::string_view branch_of_one_rank(const DecoderLayer& layer);

// x [T, H] -> x' [T, H], within the layer's scope. `cache_layers`: of add_layer_needs().
graph::Value build_layer(graph::GraphBuilder& g, const DecoderLayer& layer, graph::Value x,
                         const LayerInputs& inputs, std::span<const CacheLayer> cache_layers,
                         const NormForm& norms);

}  // namespace heddle::models
