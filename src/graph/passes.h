// SPDX-License-Identifier: Apache-2.0
// The passes of compile() (program.h) that need only the graph. Copy elision is in placement.h, the
// arena in memory_plan.h.
#pragma once

#include <span>
#include <vector>

#include "graph/chains.h"
#include "graph/graph.h"
#include "ops/registry.h"

namespace heddle::graph {

// Checks that a graph is well formed: every node has the inputs that its op requires and the shapes
// that its op infers, values are defined once and before they are read, and a version that was
// overwritten in place is not read again. Run before and after every other pass. Error:
// kInvalidArgument, naming the node.
Status verify(const Graph& graph);

// Drops nodes whose results no node reads. Nodes that write KV pages or recurrent state stay,
// as do those in which all ranks take part, and with them everything they read.
Graph remove_dead_code(Graph graph);

// Replaces pairs of ops by one op that touches memory once. A pattern is data: the first op, the op
// that reads its result, and the fused op. A pair is fused only if the fused op can run in place of
// the second op, and never across a split.
//
//   add(a, b) -> rms_norm          add_rms_norm: the residual stream is updated in place and
//                                  normalised
//   rms_norm -> rope               qk_norm_rope: per-head norm and rotation of queries and keys
//   sigmoid(gate) -> mul(x, .)     sigmoid_mul: output gates
Result<Graph> fuse(Graph graph, const ops::OpRegistry& registry);

struct Segment {
  size_t begin = 0;  // the segment has the nodes [begin, end)
  size_t end = 0;
  bool split = false;
};

// Splits the list of nodes into segments. Launches of some nodes depend on more than the number of
// tokens: ops that depend on the batch (attention, recurrence) and ops on the rows whose logits are
// needed, each with its whole chain. Consecutive nodes of this kind are a segment that runs
// eagerly. The segments between them can be captured once for a number of rows and replayed. Order
// is kept; no segment is empty.
std::vector<Segment> split_into_segments(const Graph& graph, std::span<const Chain> chains);

}  // namespace heddle::graph
