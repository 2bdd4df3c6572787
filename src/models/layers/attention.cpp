// SPDX-License-Identifier: Apache-2.0
#include "models/layers/attention.h"

#include <cmath>

#include <fmt/format.h>

#include "checkpoint/interleaved_rows.h"
#include "models/layers/linear.h"
#include "models/layers/rope_table.h"

namespace heddle::models {

using graph::Value;

AttentionOptions attention_options(const checkpoint::ModelConfig& config) {
  return {.hidden_size = config.hidden_size,
          .num_heads = config.num_attention_heads,
          .num_kv_heads = config.num_key_value_heads,
          .head_dim = config.head_dim,
          .epsilon = config.rms_norm_eps,
          .rope_factor = rope_factor({config.rope, config.head_dim}),
          .softmax_scale = 1.0 / std::sqrt(static_cast<double>(config.head_dim))};
}

AttentionOptions in_layer(AttentionOptions options, const checkpoint::ModelConfig& config,
                          int64_t layer) {
  options.window = config.window_of(layer);
  if (options.window > 0 && config.sliding_rope) {
    options.rope_table = 1;
    options.rope_factor = rope_factor({*config.sliding_rope, config.head_dim});
  }
  return options;
}

void require_qk_norm(checkpoint::ConfigReader& reader, const checkpoint::ModelConfig& config) {
  if (reader.boolean("use_qk_norm", true)) return;
  reader.refuse("use_qk_norm", fmt::format("{} is served with these norms", config.family));
}

Value Attention::build(graph::GraphBuilder& g, Value x, const LayerInputs& inputs,
                       const CacheLayer& cache) const {
  const int64_t D = options_.head_dim;
  const int64_t width = options_.num_heads * D;
  const int64_t kv_width = options_.num_kv_heads * D;
  // [queries | gates, if any | keys | values]
  std::vector<int64_t> widths{width, kv_width, kv_width};
  if (options_.output_gate) widths.insert(widths.begin(), width);
  const std::vector<Value> in = g.split(linear(g, x, "qkv_proj"), widths);
  if (in.size() != widths.size()) return {};
  const auto rotate = [&](Value heads, std::string_view norm) {
    const Value normed = options_.qk_norm ? g.rms_norm(heads, norm, options_.epsilon) : heads;
    if (!options_.rope_table) return normed;
    return g.rope(normed, inputs.positions, inputs.rope_tables[*options_.rope_table], D,
                  options_.rope_factor);
  };
  const Value q = rotate(in.front(), "q_norm");
  const Value k = rotate(in[in.size() - 2], "k_norm");
  const Value v = in.back();
  const ops::Attrs attrs{{"num_kv_heads", static_cast<double>(options_.num_kv_heads)},
                         {"head_dim", static_cast<double>(D)},
                         {"scale", options_.softmax_scale},
                         {"window", static_cast<double>(options_.window)},
                         {"layer", static_cast<double>(cache.pages)}};
  const Value o = options_.sinks
                      ? g.apply1("paged_attention_sinks", {q, k, v, g.weight("sinks")}, attrs)
                      : g.apply1("paged_attention", {q, k, v}, attrs);
  return linear(g, options_.output_gate ? g.mul(o, g.sigmoid(in[1])) : o, "o_proj");
}

CacheLayer Attention::add_layer(CacheNeeds& needs) const {
  const KvShape shape{.num_heads = options_.num_kv_heads, .head_dim = options_.head_dim};
  return {.pages = needs.add_kv_layer(shape, options_.window)};
}

void Attention::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                            const std::string& hub) const {
  const int64_t H = options_.hidden_size;
  const int64_t D = options_.head_dim;
  const int64_t width = options_.num_heads * D;
  const int64_t kv_width = options_.num_kv_heads * D;
  using checkpoint::PartCut;
  std::vector<checkpoint::CutPart> cut{
      {width, D}, {kv_width, D, PartCut::kCopied}, {kv_width, D, PartCut::kCopied}};
  HubLinear q{hub + "q_proj", width};
  if (options_.output_gate) {  // the hub has query and gate side by side in every head
    q.num_rows = 2 * width;
    q.runs = checkpoint::split_query_gate_rows(options_.num_heads, D);
    cut.insert(cut.begin(), {width, D});
  }
  add_linear_weights(
      specs, ours + "qkv_proj", {q, {hub + "k_proj", kv_width}, {hub + "v_proj", kv_width}},
      options_.input_size > 0 ? options_.input_size : H, rows_cut(cut), options_.qkv_bias);
  add_linear_weights(specs, ours + "o_proj", {{hub + "o_proj", H}}, width,
                     columns_cut({{width, D}}), options_.output_bias);
  if (options_.qk_norm) {
    for (const char* norm : {"q_norm", "k_norm"}) {
      add_norm_weight(specs, ours + norm, hub + norm + ".weight", D, options_.qk_norm_offset);
    }
  }
  if (options_.sinks) {
    const int64_t N = options_.num_heads;
    specs.push_back({.name = ours + "sinks",
                     .shape = {N},
                     .alternatives = {checkpoint::whole({hub + "sinks", {N}})},
                     .dtype = checkpoint::WeightDType::kF32,
                     .cut = rows_cut({{N}})});
  }
}

}  // namespace heddle::models
