// SPDX-License-Identifier: Apache-2.0
#include "models/layers/delta_rule_mixer.h"

#include <cmath>
#include <utility>

#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::Initial;
using checkpoint::WeightDType;
using graph::Value;

checkpoint::LinearAttentionConfig DeltaRuleMixer::own_config(const checkpoint::Rank& rank) const {
  checkpoint::LinearAttentionConfig own = config_;
  own.num_key_heads = own_range(queries(), rank).count / config_.key_head_dim;
  own.num_value_heads = own_range(values(), rank).count / config_.value_head_dim;
  return own;
}

Value DeltaRuleMixer::delta_rule(graph::GraphBuilder& g, Value qkv, Value a, Value b,
                                 const CacheLayer& cache) const {
  const auto layer = static_cast<double>(cache.states);
  const Value mixed = g.apply1("causal_conv1d", {qkv, g.weight("conv")}, {{"layer", layer}});
  return g.apply1("gated_delta_rule", {mixed, a, b, g.weight("neg_exp_a_log"), g.weight("dt_bias")},
                  {{"num_key_heads", static_cast<double>(own_config(g.rank()).num_key_heads)},
                   {"key_dim", static_cast<double>(config_.key_head_dim)},
                   {"value_dim", static_cast<double>(config_.value_head_dim)},
                   {"beta_scale", config_.beta_scale},
                   {"layer", layer}});
}

void DeltaRuleMixer::add_decay_weights(std::vector<checkpoint::WeightSpec>& specs,
                                       const std::string& ours, const std::string& hub,
                                       const std::vector<Shape>& a_log_shapes,
                                       const checkpoint::CutPart& dt) const {
  std::vector<checkpoint::Assembly> a_log;
  for (const Shape& shape : a_log_shapes)
    a_log.push_back(checkpoint::whole({hub + "A_log", shape}));
  specs.push_back({.name = ours + "A_log",
                   .shape = {config_.num_value_heads},
                   .alternatives = std::move(a_log),
                   .dtype = WeightDType::kF32,
                   .initial = Initial::kLogDecay,
                   .on_host = true,
                   .cut = rows_cut({per_value_head()})});
  specs.push_back({.name = ours + "dt_bias",
                   .shape = {dt.size},
                   .alternatives = {checkpoint::whole({hub + "dt_bias", {dt.size}})},
                   .dtype = WeightDType::kF32,
                   .initial = Initial::kAroundOne,
                   .cut = rows_cut({dt})});
}

void derive_decays(const checkpoint::LoadedWeights& weights, const std::string& ours,
                   DerivedWeights& derived) {
  const TensorView& a_log = weights.host(ours + "A_log");
  Tensor decay(a_log.shape, DType::kF32);
  for (int64_t j = 0; j < decay.num_elements(); ++j) {
    decay.span<float>()[static_cast<size_t>(j)] = -std::exp(a_log.as<float>()[j]);
  }
  derived.emplace_back(ours + "neg_exp_a_log", std::move(decay));
}

void DeltaRuleMixer::derive_weights(const checkpoint::LoadedWeights& weights,
                                    const std::string& ours, DerivedWeights& derived) const {
  derive_decays(weights, ours, derived);
}

CacheLayer DeltaRuleMixer::add_layer(CacheNeeds& needs) const {
  const checkpoint::LinearAttentionConfig own = own_config(needs.rank);
  const int64_t channels = 2 * own.key_width() + own.value_width();
  return {.states = needs.add_state_layer(
              {{.tensor = ops::StateTensor::kConv, .shape = {own.conv_kernel - 1, channels}},
               {.tensor = ops::StateTensor::kRecurrent,
                .shape = {own.num_value_heads, own.value_head_dim, own.key_head_dim},
                .is_rounded = true}})};
}

}  // namespace heddle::models
