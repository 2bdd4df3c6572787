// SPDX-License-Identifier: Apache-2.0
#include "models/qwen3_next/gated_attention.h"

#include <cmath>

#include "checkpoint/interleaved_rows.h"

namespace heddle::models {

using graph::Value;

Value GatedAttention::build(graph::GraphBuilder& g, Value x, Value positions,
                            Value inverse_frequencies, int64_t kv_layer) const {
  const int64_t width = num_heads * head_dim;
  const int64_t kv_width = num_kv_heads * head_dim;
  const auto rotate = [&](Value heads, std::string_view norm) {
    return g.rope(g.rms_norm(heads, norm, epsilon), positions, inverse_frequencies, head_dim,
                  rope_factor);
  };
  const std::vector<Value> in =
      g.split(g.linear(x, "qgkv_proj"), {width, width, kv_width, kv_width});
  if (in.size() != 4) return {};
  const Value q = rotate(in[0], "q_norm");
  const Value gate = in[1];
  const Value k = rotate(in[2], "k_norm");
  const Value v = in[3];
  const Value o = g.apply1("paged_attention", {q, k, v},
                           {{"num_kv_heads", static_cast<double>(num_kv_heads)},
                            {"head_dim", static_cast<double>(head_dim)},
                            {"scale", 1.0 / std::sqrt(static_cast<double>(head_dim))},
                            {"layer", static_cast<double>(kv_layer)}});
  return g.linear(g.mul(o, g.sigmoid(gate)), "o_proj");
}

void GatedAttention::add_weights(std::vector<checkpoint::WeightSpec>& specs,
                                 const std::string& ours, const std::string& hub) const {
  const int64_t H = hidden_size;
  const int64_t width = num_heads * head_dim;
  const int64_t kv_width = num_kv_heads * head_dim;
  // [queries | gates | keys | values]; the checkpoint has query and gate side by side in every
  // head.
  specs.push_back(
      {.name = ours + "qgkv_proj",
       .shape = {2 * width + 2 * kv_width, H},
       .alternatives = {{{.tensor = {hub + "q_proj.weight", {2 * width, H}},
                          .runs = checkpoint::split_query_gate_rows(num_heads, head_dim)},
                         {.tensor = {hub + "k_proj.weight", {kv_width, H}},
                          .runs = {{.target_row = 2 * width, .num_rows = kv_width}}},
                         {.tensor = {hub + "v_proj.weight", {kv_width, H}},
                          .runs = {{.target_row = 2 * width + kv_width, .num_rows = kv_width}}}}}});
  specs.push_back({.name = ours + "o_proj",
                   .shape = {H, width},
                   .alternatives = {checkpoint::whole({hub + "o_proj.weight", {H, width}})}});
  for (const char* norm : {"q_norm", "k_norm"}) {
    specs.push_back({.name = ours + norm,
                     .shape = {head_dim},
                     .alternatives = {checkpoint::whole({hub + norm + ".weight", {head_dim}})},
                     .dtype = checkpoint::WeightDType::kF32,
                     .offset = 1});
  }
}

}  // namespace heddle::models
