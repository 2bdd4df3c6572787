// SPDX-License-Identifier: Apache-2.0
#include "runner/load/decode_traffic.h"

#include <algorithm>
#include <cmath>

#include "quant/packed_rows.h"
#include "runner/step/pools.h"

namespace heddle::runner {

namespace {

// The share of a weight that a step reads: some rows of a table, the chosen experts, or all of it.
double part_read(const graph::Graph& graph, const graph::Node& node, const TensorView& weight,
                 int64_t batch) {
  const auto rows = static_cast<double>(weight.shape[0]);
  const auto sequences = static_cast<double>(batch);
  if (node.op->name == "embedding") return std::min(1.0, sequences / rows);
  if (node.op->name.starts_with("routed_moe")) {
    // The router scores all experts; a rank may have only some of them.
    const auto all = static_cast<double>(graph.info(node.inputs[1]).meta[1].offset);
    const double chosen = static_cast<double>(node.attrs.integer("top_k")) / all;
    return 1.0 - std::pow(1.0 - chosen, sequences);
  }
  if (node.op->name == "absorb_query" || node.op->name == "expand_values") {
    // Each of the two ops reads its part of the rows of every head.
    const double keys =
        static_cast<double>(node.attrs.integer("num_heads") * node.attrs.integer("key_dim")) / rows;
    return node.op->name == "absorb_query" ? keys : 1.0 - keys;
  }
  return 1.0;
}

// Bytes of keys and values that a token reads in all layers together.
int64_t kv_bytes_read(const models::CacheNeeds& needs, DType dtype, int64_t context_tokens) {
  int64_t bytes = 0;
  const std::vector<cache::KvLayout> layouts = kv_layouts(needs, 16, dtype);
  for (size_t group = 0; group < layouts.size(); ++group) {
    const int64_t window = needs.page_groups[group].window;
    const int64_t rows = window > 0 ? std::min(window, context_tokens) : context_tokens;
    bytes += rows * layouts[group].bytes_per_token();
  }
  return bytes;
}

}  // namespace

DecodeTraffic decode_traffic(const ForwardPass& pass, int64_t batch, int64_t context_tokens) {
  DecodeTraffic traffic;
  const graph::Graph& graph = pass.program().placed.graph;
  for (const graph::Node& node : graph.nodes) {
    for (const graph::Value input : node.inputs) {
      const graph::ValueInfo& info = graph.info(input);
      if (info.kind != graph::ValueKind::kConstant) continue;
      traffic.weight_bytes += part_read(graph, node, info.constant, batch) *
                              static_cast<double>(quant::stored_bytes(info.constant));
    }
  }
  const models::CacheNeeds needs = pass.cache_needs();
  const int64_t kv_bytes = kv_bytes_read(needs, pass.kv_dtype(), context_tokens);
  const int64_t state_bytes = cache::bytes_per_slot(state_layouts(needs));
  traffic.cache_bytes = static_cast<double>(batch * (kv_bytes + 2 * state_bytes));
  // Each rank reads its own part, and all of what none of them shares.
  traffic.weight_bytes *= static_cast<double>(pass.num_ranks());
  traffic.cache_bytes *= static_cast<double>(pass.num_ranks());
  return traffic;
}

}  // namespace heddle::runner
