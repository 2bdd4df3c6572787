// SPDX-License-Identifier: Apache-2.0
// Feed-forward blocks shared by the families.
#pragma once

#include <string>
#include <vector>

#include "checkpoint/model_config.h"
#include "checkpoint/weight_map.h"
#include "graph/builder.h"

namespace heddle::models {

// SwiGLU: W_down(silu(W_gate x) * (W_up x)). Shazeer, arXiv:2002.05202. Gate and up are one
// product.
graph::Value swiglu_mlp(graph::GraphBuilder& g, graph::Value x);
void add_swiglu_mlp_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                            const std::string& hub, int64_t hidden_size, int64_t intermediate_size);

// Routed experts, and a shared one behind a sigmoid gate:
//     sum over the top k of p_e * SwiGLU_e(x)  +  sigmoid(w . x) * SwiGLU_shared(x)
// with p the softmax over all experts, renormalised over the chosen ones if the config says so. The
// shared expert's two products, its gate and the router read x once: they are one product.
graph::Value moe_block(graph::GraphBuilder& g, const checkpoint::MoeConfig& moe, graph::Value x);
void add_moe_block_weights(std::vector<checkpoint::WeightSpec>& specs, const std::string& ours,
                           const std::string& hub, int64_t hidden_size,
                           const checkpoint::MoeConfig& moe);

}  // namespace heddle::models
