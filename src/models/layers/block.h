// SPDX-License-Identifier: Apache-2.0
// Blocks: the parts of a decoder layer. A Mixer moves information between tokens and may keep pages
// or a state; a FeedForward processes each token alone. Each block declares its weights and their
// layouts in a checkpoint, the memory that it needs per sequence, and its computation. A layer
// (layer.h) adds norms and residuals.
//
// Threading: values, used while a model loads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/load_weights.h"
#include "checkpoint/weight_map.h"
#include "graph/builder.h"
#include "models/model.h"

namespace heddle::models {

// Inputs that all layers of a step share.
struct LayerInputs {
  graph::Value positions;                 // [T] i32
  std::vector<graph::Value> rope_tables;  // [R/2] f32 each (rope_table.h); a layer selects one by
                                          // index
  graph::Value axis_positions = {};       // [T, 3] i32: positions on three axes, in place of
                                          // `positions` in programs that accept pictures
  graph::Value axes = {};                 // [R/2] i32: the axis whose position rotates each pair
  graph::Value query_scale = {};          // [T, 1] f32: factor on the queries at each position
  std::vector<graph::Value> own = {};     // outputs of the family's SharedInputs
};

// Values that all layers of a model read, computed once per step from token ids and embedding.
class SharedInputs {
 public:
  virtual ~SharedInputs() = default;

  // `hub`: the prefix of the model's hub names, "model.".
  virtual void add_weights(std::vector<checkpoint::WeightSpec>& specs,
                           const std::string& hub) const = 0;

  // `ids` [T]; `embedding` [T, H] is the input of the first layer.
  virtual std::vector<graph::Value> build(graph::GraphBuilder& g, graph::Value ids,
                                          graph::Value embedding) const = 0;
};

class Mixer {
 public:
  virtual ~Mixer() = default;

  // The prefix of the names of its weights, in Heddle and in the hub's files: "self_attn.".
  [[nodiscard]] virtual std::string_view scope() const = 0;

  // `ours` and `hub` are prefixes of weight names that end with scope().
  virtual void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                           const std::string& hub) const = 0;

  // Adds constants computed from the weights; their names also begin with `ours`.
  virtual void derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                              DerivedWeights& derived) const {
    (void)weights, (void)ours, (void)derived;
  }

  // Whether build() and add_layer() write the part of any rank.
  [[nodiscard]] virtual bool serves_ranks() const { return false; }

  // Adds the pages and the state that one such layer keeps, if any, on the rank of `needs`.
  virtual CacheLayer add_layer(CacheNeeds& needs) const = 0;

  // x [T, H] -> [T, H]; call within scope(). `cache` is what add_layer() returned.
  virtual graph::Value build(graph::GraphBuilder& g, graph::Value x, const LayerInputs& inputs,
                             const CacheLayer& cache) const = 0;
};

class FeedForward {
 public:
  virtual ~FeedForward() = default;

  // Whether build() writes the part of any rank.
  [[nodiscard]] virtual bool serves_ranks() const { return false; }

  virtual void add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                           const std::string& hub) const = 0;

  // x [T, H] -> [T, H]; call within "mlp.".
  virtual graph::Value build(graph::GraphBuilder& g, graph::Value x) const = 0;
};

}  // namespace heddle::models
