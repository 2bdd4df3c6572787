// SPDX-License-Identifier: Apache-2.0
#include "graph/split.h"

namespace heddle::graph {

std::vector<Segment> split_into_segments(const Graph& graph) {
  std::vector<Segment> segments;
  size_t begin = 0;
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    if ((graph.nodes[i].op->effects & ops::kSplit) == 0) continue;
    if (begin < i) segments.push_back({.begin = begin, .end = i});
    segments.push_back({.begin = i, .end = i + 1, .split = true});
    begin = i + 1;
  }
  if (begin < graph.nodes.size()) segments.push_back({.begin = begin, .end = graph.nodes.size()});
  return segments;
}

}  // namespace heddle::graph
