// SPDX-License-Identifier: Apache-2.0
#include "models/layers/attention.h"

#include <cmath>

#include <fmt/format.h>

#include "checkpoint/interleaved_rows.h"
#include "models/layers/linear.h"
#include "models/layers/rope_table.h"

namespace heddle::models {

using graph::Value;

namespace {

constexpr const char* kUnitNorm = "unit_norm";

// The number of parts of qkv_proj before the keys: queries and, if the layer has them, gates.
size_t num_query_parts(const AttentionOptions& options) {
  return options.output_gate == OutputGate::kNone ? 1 : 2;
}

// The parts of qkv_proj, one product of x: [queries | gates | keys | values]. A layer without gates
// omits the gates; a layer that reads another layer's keys and values omits keys and values.
std::vector<checkpoint::CutPart> projections(const AttentionOptions& options) {
  const int64_t D = options.head_dim;
  const int64_t Dv = options.value_dim > 0 ? options.value_dim : D;
  std::vector<checkpoint::CutPart> parts{{options.num_heads * D, D}};
  if (options.output_gate == OutputGate::kChannels) parts.push_back(parts.front());
  if (options.output_gate == OutputGate::kHeads) parts.push_back({options.num_heads});
  if (options.reads_pages) return parts;
  constexpr auto kCopied = checkpoint::PartCut::kCopied;
  parts.push_back({options.num_kv_heads * D, D, kCopied});
  if (!options.keys_are_values) parts.push_back({options.num_kv_heads * Dv, Dv, kCopied});
  return parts;
}

// The hub's linear layers that contain `parts`.
std::vector<HubLinear> hub_projections(const AttentionOptions& options, const std::string& hub,
                                       const std::vector<checkpoint::CutPart>& parts) {
  if (options.is_fused) {
    int64_t num_rows = 0;
    for (const checkpoint::CutPart& part : parts) num_rows += part.size;
    return {{hub + "qkv_proj", num_rows}};
  }
  std::vector<HubLinear> layers{{hub + "q_proj", parts[0].size}};
  if (options.output_gate == OutputGate::kChannels) {  // each head has its query followed by its
                                                       // gate
    layers[0].num_rows *= 2;
    layers[0].runs = checkpoint::split_query_gate_rows(options.num_heads, options.head_dim);
  }
  if (options.output_gate == OutputGate::kHeads) layers.push_back({hub + "g_proj", parts[1].size});
  const size_t keys = num_query_parts(options);
  if (keys < parts.size()) layers.push_back({hub + "k_proj", parts[keys].size});
  if (keys + 1 < parts.size()) layers.push_back({hub + "v_proj", parts[keys + 1].size});
  return layers;
}

}  // namespace

AttentionOptions attention_options(const checkpoint::ModelConfig& config) {
  return {.hidden_size = config.hidden_size,
          .num_heads = config.num_attention_heads,
          .num_kv_heads = config.num_key_value_heads,
          .head_dim = config.head_dim,
          .epsilon = config.rms_norm_eps,
          .rope_factor = rope_factor({config.rope, config.head_dim}),
          .scales_queries = config.rope.query_scale_beta != 0,
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

Value Attention::rotated(graph::GraphBuilder& g, Value heads, std::string_view norm,
                         const LayerInputs& inputs) const {
  const int64_t D = options_.head_dim;
  const bool before = options_.qk_norm == QkNorm::kHeads || options_.qk_norm == QkNorm::kWhole;
  if (before) heads = g.rms_norm(heads, norm, options_.epsilon);
  if (options_.rope_table) {
    const Value table = inputs.rope_tables[*options_.rope_table];
    if (inputs.axis_positions.valid()) {
      heads = g.apply1("rope_axes", {heads, inputs.axis_positions, table, inputs.axes},
                       {{"head_dim", static_cast<double>(D)}, {"factor", options_.rope_factor}});
    } else {
      heads =
          options_.interleaved
              ? g.rope_channels(heads, inputs.positions, table, D, 0, true, options_.rope_factor)
              : g.rope(heads, inputs.positions, table, D, options_.rope_factor);
    }
  }
  return options_.qk_norm == QkNorm::kRotated ? g.rms_norm(heads, kUnitNorm, options_.epsilon)
                                              : heads;
}

Value Attention::build(graph::GraphBuilder& g, Value x, const LayerInputs& inputs,
                       const CacheLayer& cache) const {
  const int64_t D = options_.head_dim;
  const std::vector<int64_t> widths = own_sizes(projections(options_), g.rank());
  const std::vector<Value> in = g.split(linear(g, x, "qkv_proj"), widths);
  if (in.size() != widths.size()) return {};
  Value q = rotated(g, in.front(), "q_norm", inputs);
  if (options_.scales_queries) q = g.mul(q, inputs.query_scale);
  const ops::Attrs attrs{{"num_kv_heads", static_cast<double>(own_kv_heads(g.rank()))},
                         {"head_dim", static_cast<double>(D)},
                         {"scale", options_.softmax_scale},
                         {"window", static_cast<double>(options_.window)},
                         {"layer", static_cast<double>(cache.pages)}};
  Value o;
  if (options_.reads_pages) {
    o = g.apply1("attention_to_pages", {q}, attrs);
  } else {
    const Value k = rotated(g, in[num_query_parts(options_)], "k_norm", inputs);
    Value v = g.scale(in.back(), options_.value_scale);
    if (options_.value_norm) v = g.rms_norm(v, kUnitNorm, options_.epsilon);
    o = options_.sinks ? g.apply1("paged_attention_sinks", {q, k, v, g.weight("sinks")}, attrs)
                       : g.apply1("paged_attention", {q, k, v}, attrs);
  }
  return summed_linear(g,
                       options_.output_gate == OutputGate::kNone ? o : g.mul(o, g.sigmoid(in[1])),
                       "o_proj", options_.hidden_size);
}

CacheLayer Attention::add_layer(CacheNeeds& needs) const {
  if (options_.reads_pages) return {.pages = *options_.reads_pages};
  KvShape shape{.num_heads = own_kv_heads(needs.rank), .head_dim = options_.head_dim};
  if (value_dim() != shape.head_dim) shape.value_dim = value_dim();
  return {.pages = needs.add_kv_layer(shape, options_.window)};
}

void Attention::derive_weights(const checkpoint::LoadedWeights& /*weights*/,
                               const std::string& ours, DerivedWeights& derived) const {
  if (options_.value_norm || options_.qk_norm == QkNorm::kRotated) {
    derived.emplace_back(ours + kUnitNorm, unit_norm(options_.head_dim));
  }
}

void Attention::add_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                            const std::string& hub) const {
  const int64_t H = options_.hidden_size;
  const int64_t D = options_.head_dim;
  const int64_t N = options_.num_heads;
  const std::vector<checkpoint::CutPart> parts = projections(options_);
  add_linear_weights(specs, ours + "qkv_proj", hub_projections(options_, hub, parts),
                     options_.input_size > 0 ? options_.input_size : H, rows_cut(parts),
                     options_.qkv_bias);
  add_linear_weights(specs, ours + "o_proj", {{hub + options_.names.output, H}}, N * value_dim(),
                     columns_cut({{N * value_dim(), value_dim()}}), options_.output_bias);
  const bool whole = options_.qk_norm == QkNorm::kWhole;
  if (whole || options_.qk_norm == QkNorm::kHeads) {
    const auto add_norm = [&](const char* norm, const std::string& name,
                              const checkpoint::CutPart& part) {
      add_norm_weight(specs, ours + norm, hub + name + ".weight", whole ? part.size : D,
                      options_.qk_norm_offset);
      if (whole) specs.back().cut = rows_cut({part});
    };
    add_norm("q_norm", options_.names.q_norm, parts.front());
    if (!options_.reads_pages) {
      add_norm("k_norm", options_.names.k_norm, parts[num_query_parts(options_)]);
    }
  }
  if (options_.sinks) {
    specs.push_back({.name = ours + "sinks",
                     .shape = {N},
                     .alternatives = {checkpoint::whole({hub + "sinks", {N}}),
                                      checkpoint::whole({hub + "attention_sink_bias", {N}})},
                     .dtype = checkpoint::WeightDType::kF32,
                     .cut = rows_cut({{N}})});
  }
}

}  // namespace heddle::models
