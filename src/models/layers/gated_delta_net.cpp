// SPDX-License-Identifier: Apache-2.0
#include "models/layers/gated_delta_net.h"

#include "checkpoint/interleaved_rows.h"
#include "models/layers/linear.h"

namespace heddle::models {

using graph::Value;

Value GatedDeltaNet::build(graph::GraphBuilder& g, Value x, const LayerInputs& /*inputs*/,
                           const CacheLayer& cache) const {
  const int64_t Nv = config_.num_value_heads;
  const DType activations = g.activations();
  const std::vector<Value> in = linear_parts(g, x, "in_proj",
                                             {{conv_channels(), activations},
                                              {config_.value_width(), activations},
                                              {Nv, DType::kF32},
                                              {Nv, DType::kF32}});
  if (in.size() != 4) return {};
  const Value z = in[1];
  const Value b = in[2];
  const Value a = in[3];
  const Value o = delta_rule(g, in[0], a, b, cache);
  const Value y = g.apply1("gated_rms_norm", {o, z, g.weight("norm")}, {{"epsilon", epsilon_}});
  return linear(g, y, "out_proj");
}

void GatedDeltaNet::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                                const std::string& hub) const {
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
                   .alternatives = {interleaved, apart},
                   .cut = rows_cut({queries(), queries(), values(), values(), per_value_head(),
                                    per_value_head()})});
  specs.push_back({.name = ours + "conv",
                   .shape = {C, W},
                   .alternatives = {checkpoint::whole({hub + "conv1d.weight", {C, 1, W}})},
                   .dtype = checkpoint::WeightDType::kF32,
                   .cut = rows_cut({queries(), queries(), values()})});
  add_decay_weights(specs, ours, hub, {Shape{Nv}}, per_value_head());
  add_norm_weight(specs, ours + "norm", hub + "norm.weight", config_.value_head_dim, 0);
  add_linear_weights(specs, ours + "out_proj", {{hub + "out_proj", H}}, Vd,
                     columns_cut({values()}));
}

}  // namespace heddle::models
