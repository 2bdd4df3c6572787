// SPDX-License-Identifier: Apache-2.0
#include "models/layers/mamba2.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "models/layers/delta_rule_mixer.h"
#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::ConfigReader;
using checkpoint::CutPart;
using checkpoint::Initial;
using checkpoint::WeightDType;
using graph::Value;

namespace {

constexpr const char* kScaledConvolution = "conv_scaled";

}  // namespace

bool Mamba2::scales_inputs() const {
  return std::ranges::any_of(options_.factors.begin() + 1, options_.factors.begin() + 4,
                             [](double factor) { return factor != 1; });
}

Value Mamba2::build(graph::GraphBuilder& g, Value x, const LayerInputs& /*inputs*/,
                    const CacheLayer& cache) const {
  const auto layer = static_cast<double>(cache.states);
  const DType activations = g.activations();
  const std::vector<Value> in = linear_parts(g, x, "in_proj",
                                             {{config_.inner(), activations},
                                              {config_.conv_channels(), activations},
                                              {config_.num_heads, DType::kF32}});
  if (in.size() != 3) return {};
  const Value z = g.scale(in[0], options_.factors[0]);
  const Value dt = g.scale(in[2], options_.factors[4]);
  const Value weight = g.weight(scales_inputs() ? kScaledConvolution : "conv");
  const Value vkq = config_.conv_bias
                        ? g.apply1("causal_conv1d_bias", {in[1], weight, g.weight("conv.bias")},
                                   {{"layer", layer}})
                        : g.apply1("causal_conv1d", {in[1], weight}, {{"layer", layer}});
  const Value y = g.apply1("decayed_linear_attention",
                           {vkq, dt, g.weight("neg_exp_a_log"), g.weight("dt_bias"), g.weight("D")},
                           {{"num_key_heads", static_cast<double>(config_.num_groups)},
                            {"key_dim", static_cast<double>(config_.state_size)},
                            {"value_dim", static_cast<double>(config_.head_dim)},
                            {"dt_low", config_.dt_low},
                            {"dt_high", config_.dt_high},
                            {"layer", layer}});
  return linear(g, gated_norm(g, y, z), "out_proj");
}

Value Mamba2::gated_norm(graph::GraphBuilder& g, Value y, Value z) const {
  if (options_.norm == Mamba2Norm::kNone) return g.silu_mul(g.concat(z, y));
  ops::Attrs attrs{{"epsilon", options_.epsilon}};
  if (options_.norm != Mamba2Norm::kGroupsNormFirst) attrs.set("gate_first", 1);
  if (options_.norm != Mamba2Norm::kGateFirst) {
    attrs.set("group_width", static_cast<double>(config_.inner() / config_.num_groups));
  }
  return g.apply1("gated_rms_norm", {y, z, g.weight("norm")}, attrs);
}

void Mamba2::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                         const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t C = config_.conv_channels();
  const int64_t heads = config_.num_heads;
  const int64_t W = config_.conv_kernel;
  const CutPart channels{config_.inner(), config_.head_dim};
  const CutPart groups{config_.group_width(), config_.state_size, checkpoint::PartCut::kCopied};
  const checkpoint::WeightCut conv_cut = rows_cut({channels, groups, groups});
  add_linear_weights(specs, ours + "in_proj", {{hub + "in_proj", config_.inner() + C + heads}}, H,
                     rows_cut({channels, channels, groups, groups, {heads}}), config_.in_bias);
  specs.push_back({.name = ours + "conv",
                   .shape = {C, W},
                   .alternatives = {checkpoint::whole({hub + "conv1d.weight", {C, 1, W}})},
                   .dtype = WeightDType::kF32,
                   .on_host = scales_inputs(),
                   .cut = conv_cut});
  const auto add_vector = [&](const std::string& name, const std::string& hub_name, int64_t size,
                              Initial initial, const checkpoint::WeightCut& cut) {
    specs.push_back({.name = ours + name,
                     .shape = {size},
                     .alternatives = {checkpoint::whole({hub + hub_name, {size}})},
                     .dtype = WeightDType::kF32,
                     .initial = initial,
                     .on_host = name == "A_log",
                     .cut = cut});
  };
  if (config_.conv_bias) add_vector("conv.bias", "conv1d.bias", C, Initial::kSmall, conv_cut);
  add_vector("A_log", "A_log", heads, Initial::kLogDecay, rows_cut({{heads}}));
  add_vector("D", "D", heads, Initial::kAroundOne, rows_cut({{heads}}));
  add_vector("dt_bias", "dt_bias", heads, Initial::kAroundOne, rows_cut({{heads}}));
  if (options_.norm != Mamba2Norm::kNone) {
    add_vector("norm", "norm.weight", config_.inner(), Initial::kAroundOne, rows_cut({channels}));
  }
  add_linear_weights(specs, ours + "out_proj", {{hub + "out_proj", H}}, config_.inner(),
                     columns_cut({channels}), config_.out_bias);
}

void Mamba2::derive_weights(const checkpoint::LoadedWeights& weights, const std::string& ours,
                            DerivedWeights& derived) const {
  derive_decays(weights, ours, derived);
  if (!scales_inputs()) return;
  const TensorView& conv = weights.host(ours + "conv");
  Tensor scaled(conv.shape, DType::kF32);
  for (int64_t c = 0; c < conv.shape[0]; ++c) {
    const int64_t beyond = c - config_.inner();
    const size_t part = beyond < 0 ? 1 : (beyond < config_.group_width() ? 2 : 3);
    for (int64_t m = 0; m < conv.shape[1]; ++m) {
      scaled.view().row<float>(c)[m] =
          static_cast<float>(static_cast<double>(conv.row<float>(c)[m]) * options_.factors[part]);
    }
  }
  derived.emplace_back(ours + kScaledConvolution, std::move(scaled));
}

CacheLayer Mamba2::add_layer(CacheNeeds& needs) const {
  return {.states = needs.add_state_layer(
              {{.tensor = ops::StateTensor::kConv,
                .shape = {config_.conv_kernel - 1, config_.conv_channels()}},
               {.tensor = ops::StateTensor::kRecurrent,
                .shape = {config_.num_heads, config_.head_dim, config_.state_size},
                .is_rounded = true}})};
}

void read_time_step_limit(ConfigReader& reader, Mamba2Config& mamba) {
  const std::string_view key = reader.spelling("time_step_limit", "mamba_dt_limit");
  const std::vector<double> limits =
      reader.numbers(key, {mamba.dt_low, mamba.dt_high},
                     {.low = 0, .high = std::numeric_limits<double>::infinity()});
  if (std::isinf(limits[0])) reader.fail(key, "whose lower bound is infinite");
  if (limits[0] > limits[1]) reader.fail(key, "whose lower bound is above the upper one");
  mamba.dt_low = std::min(limits[0], 1e6);
  mamba.dt_high = std::max(limits[1], mamba.dt_low);
}

void check_mamba2(ConfigReader& reader, const Mamba2Config& mamba, std::string_view groups_key) {
  if (mamba.num_heads % mamba.num_groups != 0) {
    reader.fail(groups_key, fmt::format("which does not divide {} heads", mamba.num_heads));
  }
  constexpr int64_t kMostChannels = int64_t{1} << 22;
  if (mamba.conv_channels() > kMostChannels) {
    reader.fail(
        invalid_argument(fmt::format("the convolution of a Mamba layer has {} channels, at "
                                     "most {} are served",
                                     mamba.conv_channels(), kMostChannels)));
  }
}

Mamba2Config read_mamba2(ConfigReader& reader, const checkpoint::ModelConfig& config,
                         std::string_view inner_key) {
  const bool has_inner = !inner_key.empty() && reader.has(inner_key);
  const int64_t expand = reader.integer("mamba_expand", 2, {1, 64});
  const int64_t inner = has_inner ? reader.integer(inner_key, std::nullopt, checkpoint::kWidth)
                                  : expand * config.hidden_size;
  constexpr std::string_view kHeads = "mamba_n_heads";
  constexpr std::string_view kHeadDim = "mamba_d_head";
  Mamba2Config mamba{.num_heads = reader.integer(kHeads, 128, checkpoint::kHeads),
                     .state_size = reader.integer("mamba_d_state", 256, checkpoint::kHeadDim),
                     .num_groups = reader.integer("mamba_n_groups", 1, checkpoint::kHeads),
                     .conv_kernel = reader.integer("mamba_d_conv", 4, {2, 8}),
                     .conv_bias = reader.boolean("mamba_conv_bias", true),
                     .in_bias = reader.boolean("mamba_proj_bias", false)};
  mamba.out_bias = mamba.in_bias;
  mamba.head_dim = std::max<int64_t>(1, inner / mamba.num_heads);
  const nlohmann::json* const head_dim = reader.find(kHeadDim);
  if (head_dim != nullptr && *head_dim != "auto") {
    mamba.head_dim = reader.integer(kHeadDim, std::nullopt, checkpoint::kHeadDim);
  }
  if (mamba.inner() != inner) {
    reader.fail(kHeads, fmt::format("of width {}, which is not the {} channels of a Mamba layer",
                                    mamba.head_dim, inner));
  }
  read_time_step_limit(reader, mamba);
  check_mamba2(reader, mamba, "mamba_n_groups");
  return mamba;
}

}  // namespace heddle::models
