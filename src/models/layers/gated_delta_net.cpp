// SPDX-License-Identifier: Apache-2.0
#include "models/layers/gated_delta_net.h"

#include <cmath>
#include <utility>

#include "checkpoint/interleaved_rows.h"
#include "models/layers/linear.h"

namespace heddle::models {

using graph::Value;

Value GatedDeltaNet::build(graph::GraphBuilder& g, Value x, const LayerInputs& /*inputs*/,
                           int64_t cache_layer) const {
  const int64_t Nv = config_.num_value_heads;
  const auto layer = static_cast<double>(cache_layer);
  const std::vector<Value> in =
      g.split(linear(g, x, "in_proj"), {conv_channels(), config_.value_width(), Nv, Nv});
  if (in.size() != 4) return {};
  const Value z = in[1];
  const Value b = in[2];
  const Value a = in[3];

  const Value qkv = g.apply1("causal_conv1d", {in[0], g.weight("conv")}, {{"layer", layer}});
  const Value o =
      g.apply1("gated_delta_rule", {qkv, a, b, g.weight("neg_exp_a_log"), g.weight("dt_bias")},
               {{"num_key_heads", static_cast<double>(config_.num_key_heads)},
                {"key_dim", static_cast<double>(config_.key_head_dim)},
                {"value_dim", static_cast<double>(config_.value_head_dim)},
                {"layer", layer}});
  const Value y = g.apply1("gated_rms_norm", {o, z, g.weight("norm")}, {{"epsilon", epsilon_}});
  return linear(g, y, "out_proj");
}

void GatedDeltaNet::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                                const std::string& hub) const {
  using checkpoint::Initial;
  using checkpoint::WeightDType;
  using checkpoint::whole;
  const int64_t H = hidden_size_;
  const int64_t C = conv_channels();
  const int64_t Nv = config_.num_value_heads;
  const int64_t Vd = config_.value_width();
  const int64_t W = config_.conv_kernel;
  const checkpoint::DeltaNetHeads heads{.num_key_heads = config_.num_key_heads,
                                        .num_value_heads = Nv,
                                        .key_dim = config_.key_head_dim,
                                        .value_dim = config_.value_head_dim};
  // [q | k | v | z | b | a]: all read x, so they are one product. Qwen3-Next interleaves them by
  // key head, Qwen3.5 stores them apart; the names tell, because quantisers split what was one.
  const checkpoint::Assembly interleaved = {
      {.tensor = {hub + "in_proj_qkvz.weight", {C + Vd, H}},
       .runs = checkpoint::deinterleave_qkvz_rows(heads)},
      {.tensor = {hub + "in_proj_ba.weight", {2 * Nv, H}},
       .runs = checkpoint::shifted(checkpoint::deinterleave_ba_rows(heads), C + Vd)}};
  const checkpoint::Assembly apart =
      checkpoint::concatenated({{hub + "in_proj_qkv.weight", {C, H}},
                                {hub + "in_proj_z.weight", {Vd, H}},
                                {hub + "in_proj_b.weight", {Nv, H}},
                                {hub + "in_proj_a.weight", {Nv, H}}});
  specs.push_back({.name = ours + "in_proj",
                   .shape = {C + Vd + 2 * Nv, H},
                   .alternatives = {interleaved, apart}});
  specs.push_back({.name = ours + "conv",
                   .shape = {C, W},
                   .alternatives = {whole({hub + "conv1d.weight", {C, 1, W}})},
                   .dtype = WeightDType::kF32});
  specs.push_back({.name = ours + "A_log",
                   .shape = {Nv},
                   .alternatives = {whole({hub + "A_log", {Nv}})},
                   .dtype = WeightDType::kF32,
                   .initial = Initial::kLogDecay});
  specs.push_back({.name = ours + "dt_bias",
                   .shape = {Nv},
                   .alternatives = {whole({hub + "dt_bias", {Nv}})},
                   .dtype = WeightDType::kF32,
                   .initial = Initial::kAroundOne});
  add_norm_weight(specs, ours + "norm", hub + "norm.weight", config_.value_head_dim, 0);
  add_linear_weights(specs, ours + "out_proj", {{hub + "out_proj", H}}, Vd);
}

void GatedDeltaNet::derive_weights(const checkpoint::LoadedWeights& weights,
                                   const std::string& ours, DerivedWeights& derived) const {
  const TensorView& a_log = weights[ours + "A_log"];
  Tensor decay(a_log.shape, DType::kF32);
  for (int64_t j = 0; j < decay.num_elements(); ++j) {
    decay.span<float>()[static_cast<size_t>(j)] = -std::exp(a_log.as<float>()[j]);
  }
  derived.emplace_back(ours + "neg_exp_a_log", std::move(decay));
}

int64_t GatedDeltaNet::add_layer(CacheNeeds& needs) const {
  needs.conv_channels = conv_channels();
  needs.conv_width = config_.conv_kernel;
  needs.num_value_heads = config_.num_value_heads;
  needs.value_dim = config_.value_head_dim;
  needs.key_dim = config_.key_head_dim;
  return needs.num_state_layers++;
}

}  // namespace heddle::models
