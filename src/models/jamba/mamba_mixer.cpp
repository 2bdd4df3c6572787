// SPDX-License-Identifier: Apache-2.0
#include "models/jamba/mamba_mixer.h"

#include <cmath>
#include <utility>

#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::Initial;
using checkpoint::WeightDType;
using checkpoint::whole;
using graph::Value;

Value MambaMixer::build(graph::GraphBuilder& g, Value x, const LayerInputs& /*inputs*/,
                        const CacheLayer& cache) const {
  const int64_t C = config_.width;
  const int64_t N = config_.state_size;
  const ops::Attrs layer{{"layer", static_cast<double>(cache.states)}};
  const std::vector<Value> in = g.split(linear(g, x, "in_proj"), {C, C});
  if (in.size() != 2) return {};
  const Value u =
      config_.conv_bias
          ? g.apply1("causal_conv1d_bias", {in[0], g.weight("conv"), g.weight("conv_bias")}, layer)
          : g.apply1("causal_conv1d", {in[0], g.weight("conv")}, layer);
  const std::vector<Value> parts = g.split(linear(g, u, "x_proj"), {config_.dt_rank, N, N});
  if (parts.size() != 3) return {};
  const Value dt = linear(g, g.rms_norm(parts[0], "dt_norm", epsilon_), "dt_proj", DType::kF32);
  const Value y = g.apply1(
      "selective_scan",
      {u, dt, g.rms_norm(parts[1], "b_norm", epsilon_), g.rms_norm(parts[2], "c_norm", epsilon_),
       in[1], g.weight("neg_exp_a_log"), g.weight("dt_bias"), g.weight("D")},
      layer);
  return linear(g, y, "out_proj");
}

void MambaMixer::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                             const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t C = config_.width;
  const int64_t N = config_.state_size;
  const int64_t R = config_.dt_rank;
  const checkpoint::WeightCut channels = rows_cut({{C}});
  const auto add = [&](const char* name, const Shape& shape, const char* hub_name,
                       const Shape& stored, Initial initial) {
    specs.push_back({.name = ours + name,
                     .shape = shape,
                     .alternatives = {whole({hub + hub_name, stored})},
                     .dtype = WeightDType::kF32,
                     .initial = initial,
                     .on_host = initial == Initial::kLogDecay,
                     .cut = channels});
  };
  add_linear_weights(specs, ours + "in_proj", {{hub + "in_proj", 2 * C}}, H, rows_cut({{C}, {C}}),
                     config_.proj_bias);
  const int64_t W = config_.conv_kernel;
  add("conv", {C, W}, "conv1d.weight", {C, 1, W}, Initial::kSmall);
  if (config_.conv_bias) add("conv_bias", {C}, "conv1d.bias", {C}, Initial::kSmall);
  add_linear_weights(specs, ours + "x_proj", {{hub + "x_proj", R + 2 * N}}, C, columns_cut({{C}}));
  add_norm_weight(specs, ours + "dt_norm", hub + "dt_layernorm.weight", R, 0);
  add_norm_weight(specs, ours + "b_norm", hub + "b_layernorm.weight", N, 0);
  add_norm_weight(specs, ours + "c_norm", hub + "c_layernorm.weight", N, 0);
  add_linear_weights(specs, ours + "dt_proj", {{hub + "dt_proj", C}}, R, channels);
  add("dt_bias", {C}, "dt_proj.bias", {C}, Initial::kAroundOne);
  add("A_log", {C, N}, "A_log", {C, N}, Initial::kLogDecay);
  add("D", {C}, "D", {C}, Initial::kAroundOne);
  add_linear_weights(specs, ours + "out_proj", {{hub + "out_proj", H}}, C, columns_cut({{C}}),
                     config_.proj_bias);
}

void MambaMixer::derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                                DerivedWeights& derived) const {
  const TensorView& a_log = weights.host(ours + "A_log");
  Tensor decay(a_log.shape, DType::kF32);
  for (int64_t i = 0; i < decay.num_elements(); ++i) {
    decay.span<float>()[static_cast<size_t>(i)] = -std::exp(a_log.as<float>()[i]);
  }
  derived.emplace_back(ours + "neg_exp_a_log", std::move(decay));
}

CacheLayer MambaMixer::add_layer(CacheNeeds& needs) const {
  return {.states = needs.add_state_layer({{.tensor = ops::StateTensor::kConv,
                                            .shape = {config_.conv_kernel - 1, config_.width}},
                                           {.tensor = ops::StateTensor::kRecurrent,
                                            .shape = {1, config_.width, config_.state_size},
                                            .is_rounded = true}})};
}

}  // namespace heddle::models
