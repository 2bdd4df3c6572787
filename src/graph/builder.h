// SPDX-License-Identifier: Apache-2.0
// GraphBuilder: the interface with which models write their op graph. Its methods read as
// mathematics. Shapes are checked as nodes are added, and the first error is stored until finish(),
// so model code needs no error handling.
//
//   Value n = g.rms_norm(h, "input_layernorm", epsilon);
//   Value o = g.linear(n, g.weight("o_proj"), {}, g.activations());
//
// The result of an op has the dtype of its input. The first input, the embedding, has
// activations(): fp32 on the CPU, the run's dtype on CUDA. A model requests fp32 explicitly where
// it needs it on every device.
//
// Weights are looked up by name below the current scope: inside GraphScope(g, "layers.3."),
// "o_proj" means "layers.3.o_proj".
//
// Threading: confined. Cost: no device work.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/weight_slice.h"
#include "graph/graph.h"
#include "ops/registry.h"

namespace heddle::graph {

// Maps Heddle's weight names to views, null for an unknown name; the owner of the memory outlives
// the graph.
using WeightLookup = std::function<const TensorView*(std::string_view name)>;

class GraphBuilder {
 public:
  // `rank`: whose part of the model it is; the weights are its slices.
  GraphBuilder(const ops::OpRegistry& registry, WeightLookup weights,
               DType activations = DType::kF32, const checkpoint::Rank& rank = {})
      : registry_(registry), weights_(std::move(weights)), activations_(activations), rank_(rank) {}

  [[nodiscard]] DType activations() const { return activations_; }

  [[nodiscard]] const checkpoint::Rank& rank() const { return rank_; }

  // Inputs and weights.
  Value input(std::string name, const ops::TensorMeta& meta);
  Value weight(std::string_view name);  // the weight of this name in the current scope

  // Rows [first, first + count) of a weight [N, K], without a copy.
  Value weight_rows(std::string_view name, int64_t first, int64_t count);

  [[nodiscard]] bool has_weight(std::string_view name) const;

  // Adds a node and returns its outputs. The methods below call it.
  std::vector<Value> apply(std::string_view op, std::vector<Value> inputs, ops::Attrs attrs = {});
  Value apply1(std::string_view op, std::vector<Value> inputs, ops::Attrs attrs = {});

  // [T] ids -> [T, H] in activations().
  Value embedding(Value ids, std::string_view table);
  // x [T, K] -> [T, N] in `dtype`, with weight [N, K] and, in every row, bias [N]; {}: no bias.
  Value linear(Value x, Value weight, Value bias, DType dtype);
  // Normalises each row or, if the weight is narrower than x, each group of as many columns as the
  // weight has.
  Value rms_norm(Value x, std::string_view weight_name, double epsilon);
  Value sigmoid(Value x);
  Value add(Value a, Value b);
  // a * b. b is as wide as a; or narrower, and each of its columns multiplies an equal run of a's
  // columns; or a single number [1].
  Value mul(Value a, Value b);
  // a * factor, in a's dtype; returns a itself if the factor is 1.
  Value scale(Value a, double factor);
  // gate_up [T, 2I] -> silu(gate) * up [T, I] in activations().
  Value silu_mul(Value gate_up);
  // As silu_mul(), for another op on [gate | up], such as "gelu_mul", with its attributes.
  Value gated(std::string_view op, Value gate_up, ops::Attrs attrs = {});
  // Rotates the first channels of each head in pairs, one frequency per pair. The tables are [R/2],
  // or [2, R/2] with longrope.
  Value rope(Value x, Value positions, Value inverse_frequencies, int64_t head_dim, double factor);
  // As rope(), from channel `first` of each head on; `interleaved`: the pairs are neighbouring
  // channels.
  Value rope_channels(Value x, Value positions, Value inverse_frequencies, int64_t head_dim,
                      int64_t first, bool interleaved, double factor);
  // Splits x into column ranges, left to right, without a copy.
  std::vector<Value> split(Value x, const std::vector<int64_t>& widths);
  Value concat(Value a, Value b);
  // [T, N] on every rank, from the columns [T, n] that each has; `part`: how ranks share all N.
  Value gather_columns(Value x, const checkpoint::CutPart& part);
  // The rows whose logits are wanted: [T, H] -> [R, H].
  Value logit_rows(Value x);

  void output(Value value, std::string name);

  [[nodiscard]] const ops::TensorMeta& meta(Value value) const;

  // The graph, or the first error with the scope in which it happened.
  Result<Graph> finish();

 private:
  friend class GraphScope;
  friend class GraphRootScope;

  void fail(Status status);
  Value constant(std::string name, const TensorView& view);

  const ops::OpRegistry& registry_;
  WeightLookup weights_;
  DType activations_;
  checkpoint::Rank rank_;
  Graph graph_;
  std::map<std::string, Value, std::less<>> constants_;
  std::string scope_;
  Status status_;
};

// Appends a name to the builder's scope as long as this object exists.
class GraphScope {
 public:
  GraphScope(GraphBuilder& builder, std::string_view suffix)
      : builder_(builder), outer_size_(builder.scope_.size()) {
    builder_.scope_ += suffix;
  }

  ~GraphScope() { builder_.scope_.resize(outer_size_); }

  GraphScope(const GraphScope&) = delete;
  GraphScope& operator=(const GraphScope&) = delete;

 private:
  GraphBuilder& builder_;
  size_t outer_size_;
};

// Replaces the builder's scope by `scope`, counted from the root, as long as this object exists:
// for weights that several layers share.
class GraphRootScope {
 public:
  GraphRootScope(GraphBuilder& builder, std::string scope)
      : builder_(builder), outer_(std::exchange(builder.scope_, std::move(scope))) {}

  ~GraphRootScope() { builder_.scope_ = std::move(outer_); }

  GraphRootScope(const GraphRootScope&) = delete;
  GraphRootScope& operator=(const GraphRootScope&) = delete;

 private:
  GraphBuilder& builder_;
  std::string outer_;
};

}  // namespace heddle::graph
