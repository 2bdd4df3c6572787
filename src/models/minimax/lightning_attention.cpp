// SPDX-License-Identifier: Apache-2.0
#include "models/minimax/lightning_attention.h"

#include <cmath>
#include <utility>

#include "models/layers/linear.h"

namespace heddle::models {

using graph::Value;

namespace {

constexpr double kLightningNormEpsilon = 1e-6;  // fixed: the file's epsilon concerns other norms

}  // namespace

Value LightningAttention::build(graph::GraphBuilder& g, Value x, const LayerInputs& /*inputs*/,
                                const CacheLayer& cache) const {
  const DType activations = g.activations();
  const std::vector<Value> in =
      linear_parts(g, x, "in_proj", {{3 * width(), activations}, {width(), activations}});
  if (in.size() != 2) return {};
  const auto D = static_cast<double>(head_dim_);
  const Value o =
      g.apply1("constant_decay_attention", {g.mul(in[0], g.sigmoid(in[0])), g.weight("log_decay")},
               {{"num_key_heads", static_cast<double>(num_heads_)},
                {"key_dim", D},
                {"value_dim", D},
                {"layer", static_cast<double>(cache.states)}});
  const Value y = g.apply1("sigmoid_gated_rms_norm", {o, in[1], g.weight("norm")},
                           {{"epsilon", kLightningNormEpsilon}});
  return linear(g, y, "out_proj");
}

void LightningAttention::add_weights(std::vector<checkpoint::WeightSpec>& specs,
                                     const std::string& ours, const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t D = head_dim_;
  const checkpoint::CutPart heads{width(), D};
  // The hub stores [q | k | v] per head; the op expects [v | k | q], each of all heads.
  std::vector<checkpoint::RowRun> runs;
  for (int64_t part = 0; part < 3; ++part) {
    for (int64_t head = 0; head < num_heads_; ++head) {
      runs.push_back({.source_row = (3 * head + part) * D,
                      .target_row = (2 - part) * width() + head * D,
                      .num_rows = D});
    }
  }
  add_linear_weights(
      specs, ours + "in_proj",
      {{hub + "qkv_proj", 3 * width(), std::move(runs)}, {hub + "output_gate", width()}}, H,
      rows_cut({heads, heads, heads, heads}));
  add_norm_weight(specs, ours + "norm", hub + "norm.weight", width(), 0);
  specs.back().cut = rows_cut({heads});
  add_linear_weights(specs, ours + "out_proj", {{hub + "out_proj", H}}, width(),
                     columns_cut({heads}));
}

void LightningAttention::derive_weights(const checkpoint::LoadedWeights& /*weights*/,
                                        const std::string& ours, DerivedWeights& derived) const {
  const auto H = static_cast<double>(num_heads_);
  const double factor =
      1 - static_cast<double>(layer_) / (static_cast<double>(num_layers_ - 1) + 1e-5) + 1e-5;
  Tensor log_decay({num_heads_}, DType::kF32);
  for (int64_t head = 0; head < num_heads_; ++head) {
    log_decay.span<float>()[static_cast<size_t>(head)] =
        static_cast<float>(-std::exp2(-8 * static_cast<double>(head + 1) / H) * factor);
  }
  derived.emplace_back(ours + "log_decay", std::move(log_decay));
}

CacheLayer LightningAttention::add_layer(CacheNeeds& needs) const {
  return {.states = needs.add_state_layer({{.tensor = ops::StateTensor::kRecurrent,
                                            .shape = {num_heads_, head_dim_, head_dim_},
                                            .is_rounded = true}})};
}

}  // namespace heddle::models
