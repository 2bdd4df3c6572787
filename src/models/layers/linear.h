// SPDX-License-Identifier: Apache-2.0
// Weights of linear layers and norms: the one place that knows how the hub stores either, and the
// one place that multiplies by a weight. Ranks, adapters and formats of weights concern the
// products here and nothing else of a model; linear_test.cpp holds the other files to that.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/weight_map.h"
#include "graph/builder.h"
#include "models/model.h"

namespace heddle::models {

// A linear layer of the hub's, "model.layers.0.self_attn.q_proj", whose rows become some of ours.
struct HubLinear {
  std::string name;
  int64_t num_rows = 0;
  std::vector<checkpoint::RowRun> runs = {};  // where its rows go, from 0; none: as they are
};

// One product out of several that read the same input: its rows are those of `parts`, end to end.
// With `bias` every part has one. `cut`: of the product; a bias is cut as its rows are.
void add_linear_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                        const std::vector<HubLinear>& parts, int64_t in_features,
                        checkpoint::WeightCut cut = {}, bool bias = false);

// Cuts by rows, and by columns.
[[nodiscard]] checkpoint::WeightCut rows_cut(std::vector<checkpoint::CutPart> parts);
[[nodiscard]] checkpoint::WeightCut columns_cut(std::vector<checkpoint::CutPart> parts);

// By whole experts, or within each.
[[nodiscard]] checkpoint::WeightCut experts_cut(checkpoint::WeightCut within);

// The cut of a table with a row for each token.
[[nodiscard]] checkpoint::WeightCut vocabulary_cut(int64_t vocab_size);

// Appends `specs`, each of which may also be stored as its namesake in `other` says: a family whose
// checkpoints spell their tensors in two ways declares them twice. Both have the same weights.
void add_either(std::vector<checkpoint::WeightSpec>& to, std::vector<checkpoint::WeightSpec> specs,
                std::vector<checkpoint::WeightSpec> other);

// x [T, K] -> [T, N], plus the bias if the layer was declared with one, in x's dtype or `dtype`.
graph::Value linear(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                    std::optional<DType> dtype = std::nullopt);

// The functions below are of products that ranks share (checkpoint/weight_slice.h); for one rank
// all of them are linear() or do nothing.

// linear() of inputs that the ranks share, [T, K / R] of each. The result is a term of
// sum_over_ranks(), which may follow later: behind the sum with other terms. The bias is in the
// term of rank 0. In exact mode no sum crosses ranks: the result is whole, from rows of the weight
// that are gathered. `out_features`: rows of the whole weight.
graph::Value linear_term(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                         int64_t out_features);

// The sum of the ranks' terms; in exact mode they are whole already.
graph::Value sum_over_ranks(graph::GraphBuilder& g, graph::Value term);

// Both.
graph::Value summed_linear(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                           int64_t out_features);

// Logits [R, V] fp32 of all tokens on every rank, from those of its rows of a table [V, H]. `tied`:
// the rank has all rows of "name", and multiplies by its own.
graph::Value vocabulary_linear(graph::GraphBuilder& g, graph::Value rows, std::string_view name,
                               int64_t vocab_size, bool tied);

// The sizes that a rank has of parts that are cut.
[[nodiscard]] std::vector<int64_t> own_sizes(const std::vector<checkpoint::CutPart>& parts,
                                             const checkpoint::Rank& rank);

// Some columns of a product.
struct LinearPart {
  int64_t width = 0;
  DType dtype = DType::kF32;
};

// linear() whose columns are taken apart, left to right: [T, width] each. Neighbours of one dtype
// are one product, whose rows of the weight stand together.
std::vector<graph::Value> linear_parts(graph::GraphBuilder& g, graph::Value x,
                                       std::string_view name, const std::vector<LinearPart>& parts);

// Products of each head with its rows of "name" or, where derive_weights() has made it plain
// numbers, "name_dense": `op` is one of ops/attention/latent_projection.h.
graph::Value head_products(graph::GraphBuilder& g, std::string_view op, graph::Value x,
                           std::string_view name, const ops::Attrs& attrs);

// The products of the experts that a token chooses by `scores`, with "experts.w13" and
// "experts.w2". `op`: one of ops/moe/routed_moe.h, which takes `more` after these. A term of
// sum_over_ranks(), as that of linear_term() is; in exact mode whole.
graph::Value expert_products(graph::GraphBuilder& g, std::string_view op, graph::Value x,
                             graph::Value scores, const std::vector<graph::Value>& more,
                             const ops::Attrs& attrs);

// Suffix of the dense weight that head_products() uses instead of a packed one.
inline constexpr std::string_view kDenseEnding = "_dense";

// The norms of a model's residual stream.
enum class NormKind : uint8_t {
  kRms,
  kUnitRms,    // without a weight
  kLayer,      // layer norm without a bias
  kLayerBias,  // layer norm with a bias
};

struct NormForm {
  NormKind kind = NormKind::kRms;
  double epsilon = 1e-6;
  float offset = 0;  // kRms only; 1: zero-centred
};

// Adds the weights of the norm that the hub calls `hub`: "model.norm". derive_norm_weights() adds
// the weight of ones that a norm without a weight computes with.
void add_norm_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                      const std::string& hub, int64_t width, const NormForm& form);
void derive_norm_weights(const std::string& ours, int64_t width, const NormForm& form,
                         DerivedWeights& derived);

graph::Value norm(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                  const NormForm& form);

// The weight of an RMS norm. `offset` is 1 for zero-centred norms, which multiply by 1 + w.
void add_norm_weight(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                     const std::string& hub, int64_t width, float offset);

// A derived weight [width] of ones, for RMS norms without a weight.
Tensor unit_norm(int64_t width);

}  // namespace heddle::models
