// SPDX-License-Identifier: Apache-2.0
#include "runner/decode_traffic.h"

#include <cmath>

#include "runner/pools.h"

namespace heddle::runner {

namespace {

// The part of a weight that a step reads: rows of a table, chosen experts, or all of it.
double part_read(const graph::Node& node, const TensorView& weight, int64_t batch) {
  const auto rows = static_cast<double>(weight.shape[0]);
  const auto sequences = static_cast<double>(batch);
  if (node.op->name == "embedding") return std::min(1.0, sequences / rows);
  if (node.op->name == "routed_moe") {
    const double chosen = static_cast<double>(node.attrs.integer("top_k")) / rows;
    return 1.0 - std::pow(1.0 - chosen, sequences);
  }
  return 1.0;
}

}  // namespace

DecodeTraffic decode_traffic(const ForwardPass& pass, int64_t batch, int64_t context_tokens) {
  DecodeTraffic traffic;
  const graph::Graph& graph = pass.program().placed.graph;
  for (const graph::Node& node : graph.nodes) {
    for (const graph::Value input : node.inputs) {
      const graph::ValueInfo& info = graph.info(input);
      if (info.kind != graph::ValueKind::kConstant) continue;
      traffic.weight_bytes +=
          part_read(node, info.constant, batch) * static_cast<double>(info.constant.num_bytes());
    }
  }
  const models::CacheNeeds needs = pass.cache_needs();
  const int64_t token_bytes = kv_layout(needs, 16, pass.dtype()).bytes_per_token();
  const int64_t state_bytes = needs.num_state_layers > 0 ? state_layout(needs).bytes_per_slot() : 0;
  traffic.cache_bytes =
      static_cast<double>(batch * (context_tokens * token_bytes + 2 * state_bytes));
  return traffic;
}

}  // namespace heddle::runner
