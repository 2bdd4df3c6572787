// SPDX-License-Identifier: Apache-2.0
#include "models/kimi_linear/kimi_delta_attention.h"

#include "models/layers/linear.h"

namespace heddle::models {

using checkpoint::PartCut;
using checkpoint::WeightSpec;
using graph::Value;

Value KimiDeltaAttention::build(graph::GraphBuilder& g, Value x, const LayerInputs& /*inputs*/,
                                const CacheLayer& cache) const {
  const checkpoint::LinearAttentionConfig own = own_config(g.rank());
  const int64_t N = own.num_key_heads;
  const int64_t D = config_.key_head_dim;
  const DType activations = g.activations();
  const std::vector<Value> in = linear_parts(
      g, x, "in_proj",
      {{3 * own.key_width(), activations}, {N, DType::kF32}, {D, activations}, {D, activations}});
  if (in.size() != 4) return {};
  const Value a = linear(g, in[2], "f_b_proj", DType::kF32);
  const Value gate = linear(g, in[3], "g_b_proj");
  const Value o = delta_rule(g, in[0], a, in[1], cache);
  const Value y =
      g.apply1("sigmoid_gated_rms_norm", {o, gate, g.weight("norm")}, {{"epsilon", epsilon_}});
  return summed_linear(g, y, "o_proj", hidden_size_);
}

void KimiDeltaAttention::add_weights(std::vector<WeightSpec>& specs, const std::string& ours,
                                     const std::string& hub) const {
  const int64_t H = hidden_size_;
  const int64_t N = config_.num_key_heads;
  const int64_t D = config_.key_head_dim;
  const int64_t W = config_.conv_kernel;
  // [q | k | v | b | f_a | g_a] is one product, because all of them read x. Published files store
  // the forget gate's weights next to the others, transformers' class in a separate module; A_log
  // has two possible shapes.
  const auto spelled = [&](const std::string& gate) {
    std::vector<WeightSpec> result;
    add_linear_weights(result, ours + "in_proj",
                       {{hub + "q_proj", width()},
                        {hub + "k_proj", width()},
                        {hub + "v_proj", width()},
                        {hub + "b_proj", N},
                        {gate + "f_a_proj", D},
                        {hub + "g_a_proj", D}},
                       H,
                       rows_cut({queries(),
                                 queries(),
                                 values(),
                                 per_value_head(),
                                 {D, 1, PartCut::kWhole},
                                 {D, 1, PartCut::kWhole}}));
    add_linear_weights(result, ours + "f_b_proj", {{gate + "f_b_proj", width()}}, D,
                       rows_cut({queries()}));
    add_decay_weights(result, ours, gate, {Shape{1, 1, N, 1}, Shape{N}}, queries());
    return result;
  };
  add_either(specs, spelled(hub), spelled(hub + "forget_gate."));
  const Shape filters{width(), 1, W};
  specs.push_back(
      {.name = ours + "conv",
       .shape = {3 * width(), W},
       .alternatives = {checkpoint::concatenated({{hub + "q_conv1d.weight", filters},
                                                  {hub + "k_conv1d.weight", filters},
                                                  {hub + "v_conv1d.weight", filters}}),
                        checkpoint::whole({hub + "conv1d.weight", {3 * width(), 1, W}})},
       .dtype = checkpoint::WeightDType::kF32,
       .cut = rows_cut({queries(), queries(), values()})});
  add_linear_weights(specs, ours + "g_b_proj", {{hub + "g_b_proj", width()}}, D,
                     rows_cut({values()}));
  add_norm_weight(specs, ours + "norm", hub + "o_norm.weight", D, 0);
  add_linear_weights(specs, ours + "o_proj", {{hub + "o_proj", H}}, width(),
                     columns_cut({values()}));
}

}  // namespace heddle::models
