// SPDX-License-Identifier: Apache-2.0
// split_into_segments: cuts the list of nodes at ops whose launch depends on the batch (attention,
// recurrence). What lies between can be captured once and replayed; each such op is a segment of
// its own and runs eagerly. Order is kept; there are no empty segments.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace heddle::graph {

struct Segment {
  size_t begin = 0;  // node indices, end exclusive
  size_t end = 0;
  bool split = false;
};

std::vector<Segment> split_into_segments(const Graph& graph);

}  // namespace heddle::graph
