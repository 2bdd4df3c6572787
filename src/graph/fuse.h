// SPDX-License-Identifier: Apache-2.0
// fuse: replaces pairs of ops by one that touches memory once. A pattern is data: the first op, the
// op that reads its result, and what they become. A pair is fused only if the fused op can stand
// where the second stood, and never across a split.
//
//   add(a, b) -> rms_norm        add_rms_norm: the residual stream is updated in place and
//   normalised rms_norm -> rope             qk_norm_rope: per-head norm and rotation of queries and
//   keys sigmoid(gate) -> mul(x, .)   sigmoid_mul: output gates
#pragma once

#include "graph/graph.h"
#include "ops/registry.h"

namespace heddle::graph {

Result<Graph> fuse(Graph graph, const ops::OpRegistry& registry);

}  // namespace heddle::graph
