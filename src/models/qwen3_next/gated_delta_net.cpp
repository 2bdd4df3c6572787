// SPDX-License-Identifier: Apache-2.0
#include "models/qwen3_next/gated_delta_net.h"

#include "checkpoint/interleaved_rows.h"

namespace heddle::models {

using graph::Value;

Value GatedDeltaNet::build(graph::GraphBuilder& g, Value x, int64_t state_layer) const {
  const int64_t Nv = config.num_value_heads;
  const auto layer = static_cast<double>(state_layer);
  const std::vector<Value> in =
      g.split(g.linear(x, "in_proj"), {conv_channels(), config.value_width(), Nv, Nv});
  if (in.size() != 4) return {};
  const Value z = in[1];
  const Value b = in[2];
  const Value a = in[3];

  const Value qkv = g.apply1("causal_conv1d", {in[0], g.weight("conv")}, {{"layer", layer}});
  const Value o =
      g.apply1("gated_delta_rule", {qkv, a, b, g.weight("neg_exp_a_log"), g.weight("dt_bias")},
               {{"num_key_heads", static_cast<double>(config.num_key_heads)},
                {"key_dim", static_cast<double>(config.key_head_dim)},
                {"value_dim", static_cast<double>(config.value_head_dim)},
                {"layer", layer}});
  const Value y = g.apply1("gated_rms_norm", {o, z, g.weight("norm")}, {{"epsilon", epsilon}});
  return g.linear(y, "out_proj");
}

void GatedDeltaNet::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                                const std::string& hub) const {
  using checkpoint::Initial;
  using checkpoint::WeightDType;
  const int64_t H = hidden_size;
  const int64_t C = conv_channels();
  const int64_t Nv = config.num_value_heads;
  const checkpoint::DeltaNetHeads heads{.num_key_heads = config.num_key_heads,
                                        .num_value_heads = Nv,
                                        .key_dim = config.key_head_dim,
                                        .value_dim = config.value_head_dim};
  // [q | k | v | z | b | a]: both projections read x, so they are one product.
  const int64_t qkvz = C + config.value_width();
  specs.push_back({.name = ours + "in_proj",
                   .shape = {qkvz + 2 * Nv, H},
                   .alternatives = {{{.tensor = {hub + "in_proj_qkvz.weight", {qkvz, H}},
                                      .runs = checkpoint::deinterleave_qkvz_rows(heads)},
                                     {.tensor = {hub + "in_proj_ba.weight", {2 * Nv, H}},
                                      .runs = checkpoint::shifted(
                                          checkpoint::deinterleave_ba_rows(heads), qkvz)}}}});
  specs.push_back(
      {.name = ours + "conv",
       .shape = {C, config.conv_kernel},
       .alternatives = {checkpoint::whole({hub + "conv1d.weight", {C, 1, config.conv_kernel}})},
       .dtype = WeightDType::kF32});
  specs.push_back({.name = ours + "A_log",
                   .shape = {Nv},
                   .alternatives = {checkpoint::whole({hub + "A_log", {Nv}})},
                   .dtype = WeightDType::kF32,
                   .initial = Initial::kLogDecay});
  specs.push_back({.name = ours + "dt_bias",
                   .shape = {Nv},
                   .alternatives = {checkpoint::whole({hub + "dt_bias", {Nv}})},
                   .dtype = WeightDType::kF32,
                   .initial = Initial::kAroundOne});
  specs.push_back(
      {.name = ours + "norm",
       .shape = {config.value_head_dim},
       .alternatives = {checkpoint::whole({hub + "norm.weight", {config.value_head_dim}})},
       .dtype = WeightDType::kF32,
       .initial = Initial::kAroundOne});
  specs.push_back(
      {.name = ours + "out_proj",
       .shape = {H, config.value_width()},
       .alternatives = {checkpoint::whole({hub + "out_proj.weight", {H, config.value_width()}})}});
}

}  // namespace heddle::models
