// SPDX-License-Identifier: Apache-2.0
// Weights of linear layers and norms: the only code that knows how the hub stores them, and the
// only code that multiplies by a weight. Ranks, adapters and weight formats affect only these
// products and no other part of a model; linear_test.cpp checks that other files contain no
// products.
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

// A linear layer in the hub, "model.layers.0.self_attn.q_proj", whose rows become rows of one of
// our weights.
struct HubLinear {
  std::string name;
  int64_t num_rows = 0;
  std::vector<checkpoint::RowRun> runs = {};  // target rows, counted from 0; empty: in stored order
};

// Adds the weight of one product for several linear layers that read the same input: its rows are
// those of `parts`, end to end. With `bias`, every part has a bias. `cut` is the cut of the
// product; a bias is cut like its rows.
void add_linear_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                        const std::vector<HubLinear>& parts, int64_t in_features,
                        checkpoint::WeightCut cut = {}, bool bias = false);

// Cuts a weight by rows, or by columns.
[[nodiscard]] checkpoint::WeightCut rows_cut(std::vector<checkpoint::CutPart> parts);
[[nodiscard]] checkpoint::WeightCut columns_cut(std::vector<checkpoint::CutPart> parts);

// Cuts a weight by whole experts or, if the number of ranks does not divide theirs, within each
// expert.
[[nodiscard]] checkpoint::WeightCut experts_cut(checkpoint::WeightCut within);

// The cut of a table that has a row for each token of the vocabulary.
[[nodiscard]] checkpoint::WeightCut vocabulary_cut(int64_t vocab_size);

// Appends `specs`. Each may also have the layouts of the spec with the same name in `other`: a
// family whose checkpoints spell tensors in two ways declares its weights twice. Both lists must
// have the same weights.
void add_either(std::vector<checkpoint::WeightSpec>& to, std::vector<checkpoint::WeightSpec> specs,
                std::vector<checkpoint::WeightSpec> other);

// x [T, K] -> [T, N] in `dtype`, by default x's; adds the bias if the layer was declared with one.
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

// linear() with its columns split, left to right, into results [T, width]. Neighbouring parts of
// one dtype are computed as one product over consecutive rows of the weight.
std::vector<graph::Value> linear_parts(graph::GraphBuilder& g, graph::Value x,
                                       std::string_view name, const std::vector<LinearPart>& parts);

// Multiplies each head by its rows of the weight `name` or, if derive_weights() has dequantised it,
// of `name` + "_dense". `op` is one of ops/attention/latent_projection.h.
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

// The kinds of norms in a model's residual stream.
enum class NormKind : uint8_t {
  kRms,
  kUnitRms,    // RMS norm without a weight
  kLayer,      // layer norm without a bias
  kLayerBias,  // layer norm with a bias
};

struct NormForm {
  NormKind kind = NormKind::kRms;
  double epsilon = 1e-6;
  float offset = 0;  // added to the weight, kRms only; 1: zero-centred norm
};

// Adds the weights of the norm with the hub name `hub`: "model.norm". derive_norm_weights() adds
// the vector of ones that a norm without a weight uses.
void add_norm_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                      const std::string& hub, int64_t width, const NormForm& form);
void derive_norm_weights(const std::string& ours, int64_t width, const NormForm& form,
                         DerivedWeights& derived);

graph::Value norm(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                  const NormForm& form);

// Adds the weight of an RMS norm. `offset` is 1 for zero-centred norms, which multiply by 1 + w.
void add_norm_weight(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                     const std::string& hub, int64_t width, float offset);

// A derived weight [width] of ones, for RMS norms without a weight.
Tensor unit_norm(int64_t width);

}  // namespace heddle::models
