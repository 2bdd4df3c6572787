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

// The functions below build products whose weights are divided among ranks
// (checkpoint/weight_slice.h). For a single rank they are linear() or do nothing.

// linear() of an x whose columns are divided among the ranks: each rank has [T, K / R]. Returns the
// rank's term of the result, with the bias on rank 0. sum_over_ranks() must add the terms; other
// terms may be added to them before. In exact mode no sum crosses ranks, and the result is
// complete: x is gathered, each rank computes its rows of the output, and these are gathered.
// `out_features`: rows of the whole weight.
graph::Value linear_term(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                         int64_t out_features);

// Adds the terms of all ranks. In exact mode returns `term`, which is complete already.
graph::Value sum_over_ranks(graph::GraphBuilder& g, graph::Value term);

// sum_over_ranks() of linear_term().
graph::Value summed_linear(graph::GraphBuilder& g, graph::Value x, std::string_view name,
                           int64_t out_features);

// The logits [R, V] in fp32 of `rows` [R, H] for a table [V, H]. Each rank computes the logits of
// its share of the tokens, and all ranks gather those of all tokens. `tied`: each rank has the
// whole table and uses its share of the rows; otherwise it has only its share.
graph::Value vocabulary_linear(graph::GraphBuilder& g, graph::Value rows, std::string_view name,
                               int64_t vocab_size, bool tied);

// For each part, how many of its rows or columns the rank has.
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
// "experts.w2". `op`: one of ops/moe/routed_moe.h, which takes `more` after these. Returns a term
// for sum_over_ranks(), as linear_term() does, and in exact mode the complete result.
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
