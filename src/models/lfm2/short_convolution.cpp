// SPDX-License-Identifier: Apache-2.0
#include "models/lfm2/short_convolution.h"

#include <utility>

#include "models/layers/linear.h"

namespace heddle::models {

using graph::Value;

Value ShortConvolution::build(graph::GraphBuilder& g, Value x, const LayerInputs& /*inputs*/,
                              const CacheLayer& cache) const {
  const int64_t H = hidden_size_;
  const std::vector<Value> in = g.split(linear(g, x, "in_proj"), {H, H, H});
  if (in.size() != 3) return {};
  std::vector<Value> inputs_of_conv{g.mul(in[0], in[2]), g.weight("conv")};
  if (bias_) inputs_of_conv.push_back(g.weight("conv_bias"));
  const Value convolved =
      g.apply1(bias_ ? "causal_conv1d_bias" : "causal_conv1d", std::move(inputs_of_conv),
               {{"layer", static_cast<double>(cache.states)}, {"silu", 0}});
  return linear(g, g.mul(in[1], convolved), "out_proj");
}

void ShortConvolution::add_weights(std::vector<checkpoint::WeightSpec>& specs,
                                   const std::string& ours, const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t W = conv_width_;
  add_linear_weights(specs, ours + "in_proj", {{hub + "in_proj", 3 * H}}, H,
                     rows_cut({{H}, {H}, {H}}), bias_);
  specs.push_back({.name = ours + "conv",
                   .shape = {H, W},
                   .alternatives = {checkpoint::whole({hub + "conv.weight", {H, 1, W}})},
                   .dtype = checkpoint::WeightDType::kF32,
                   .cut = rows_cut({{H}})});
  add_linear_weights(specs, ours + "out_proj", {{hub + "out_proj", H}}, H, columns_cut({{H}}),
                     bias_);
  if (!bias_) return;
  specs.push_back({.name = ours + "conv_bias",
                   .shape = {H},
                   .alternatives = {checkpoint::whole({hub + "conv.bias", {H}})},
                   .dtype = checkpoint::WeightDType::kF32,
                   .cut = rows_cut({{H}})});
}

CacheLayer ShortConvolution::add_layer(CacheNeeds& needs) const {
  return {.states = needs.add_state_layer(
              {{.tensor = ops::StateTensor::kConv, .shape = {conv_width_ - 1, hidden_size_}}})};
}

}  // namespace heddle::models
