// SPDX-License-Identifier: Apache-2.0
#include "models/layers/gated_delta_net.h"

#include "checkpoint/interleaved_rows.h"
#include "models/layers/linear.h"

namespace heddle::models {

using graph::Value;

Value GatedDeltaNet::build(graph::GraphBuilder& g, Value x, const LayerInputs& /*inputs*/,
                           const CacheLayer& cache) const {
  const checkpoint::LinearAttentionConfig own = own_config(g.rank());
  const int64_t Nv = own.num_value_heads;
  const DType activations = g.activations();
  const std::vector<Value> in =
      linear_parts(g, x, "in_proj",
                   {{2 * own.key_width() + own.value_width(), activations},
                    {own.value_width(), activations},
                    {Nv, DType::kF32},
                    {Nv, DType::kF32}});
  if (in.size() != 4) return {};
  const Value z = in[1];
  const Value b = in[2];
  const Value a = in[3];
  const Value o = delta_rule(g, in[0], a, b, cache);
  const Value y = g.apply1("gated_rms_norm", {o, z, g.weight("norm")}, {{"epsilon", epsilon_}});
  return summed_linear(g, y, "out_proj", hidden_size_);
}

checkpoint::WeightSpec GatedDeltaNet::joined_input(const std::string& ours,
                                                   const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t C = conv_channels();
  const int64_t Nv = config_.num_value_heads;
  const int64_t Vd = config_.value_width();
  const checkpoint::DeltaNetHeads heads{.num_key_heads = config_.num_key_heads,
                                        .num_value_heads = Nv,
                                        .key_dim = config_.key_head_dim,
                                        .value_dim = config_.value_head_dim};
  // Qwen3-Next interleaves the projections by key head, Qwen3.5 stores them one after the other.
  // The tensors' names distinguish them, because quantisation tools split Qwen3-Next's tensors.
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
  // The layout of kApart layers, also for GGUF files, whose converter has reordered only the
  // values.
  const int64_t Kd = config_.key_width();
  const checkpoint::Assembly all_apart =
      checkpoint::concatenated({{hub + "q_proj.weight", {Kd, H}},
                                {hub + "k_proj.weight", {Kd, H}},
                                {hub + "v_proj.weight", {Vd, H}},
                                {hub + "g_proj.weight", {Vd, H}},
                                {hub + "b_proj.weight", {Nv, H}},
                                {hub + "a_proj.weight", {Nv, H}}});
  return {.name = ours + "in_proj",
          .shape = {C + Vd + 2 * Nv, H},
          .alternatives = {interleaved, apart, all_apart}};
}

std::vector<checkpoint::Assembly> GatedDeltaNet::convolution(const std::string& hub) const {
  const int64_t C = conv_channels();
  const int64_t W = config_.conv_kernel;
  std::vector<checkpoint::Assembly> alternatives{
      checkpoint::whole({hub + "conv1d.weight", {C, 1, W}})};
  const auto cut = [&](int64_t q, int64_t k) {
    alternatives.push_back(
        checkpoint::concatenated({{hub + "q_conv1d.weight", {q, 1, W}},
                                  {hub + "k_conv1d.weight", {k, 1, W}},
                                  {hub + "v_conv1d.weight", {C - q - k, 1, W}}}));
  };
  cut(config_.key_width(), config_.key_width());
  if (tensors_ == DeltaNetTensors::kJoined) return alternatives;
  // Transformers 5 saves the convolution in three equal pieces, although their names suggest
  // queries, keys and values.
  const int64_t third = (C + 2) / 3;
  if (2 * third < C) cut(third, third);
  return alternatives;
}

void GatedDeltaNet::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                                const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t Nv = config_.num_value_heads;
  const int64_t Kd = config_.key_width();
  const int64_t Vd = config_.value_width();
  const bool apart = tensors_ == DeltaNetTensors::kApart;
  const checkpoint::WeightCut cut =
      rows_cut({queries(), queries(), values(), values(), per_value_head(), per_value_head()});
  if (apart) {
    add_linear_weights(specs, ours + "in_proj",
                       {{hub + "q_proj", Kd},
                        {hub + "k_proj", Kd},
                        {hub + "v_proj", Vd},
                        {hub + "g_proj", Vd},
                        {hub + "b_proj", Nv},
                        {hub + "a_proj", Nv}},
                       H, cut);
  } else {
    specs.push_back(joined_input(ours, hub));
    specs.back().cut = cut;
  }
  specs.push_back({.name = ours + "conv",
                   .shape = {conv_channels(), config_.conv_kernel},
                   .alternatives = convolution(hub),
                   .dtype = checkpoint::WeightDType::kF32,
                   .cut = rows_cut({queries(), queries(), values()})});
  add_decay_weights(specs, ours, hub, {Shape{Nv}}, per_value_head());
  add_norm_weight(specs, ours + "norm", hub + (apart ? "o_norm.weight" : "norm.weight"),
                  config_.value_head_dim, 0);
  add_linear_weights(specs, ours + "out_proj", {{hub + (apart ? "o_proj" : "out_proj"), H}}, Vd,
                     columns_cut({values()}));
}

}  // namespace heddle::models
