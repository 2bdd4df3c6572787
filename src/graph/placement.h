// SPDX-License-Identifier: Apache-2.0
// elide_copies: decides which values share memory, so that views and concatenations cost nothing.
//
// A column range of a value becomes an offset into the value's rows; a concatenation whose parts
// can be written with a row stride disappears, its producers writing straight into the result; a
// value changed in place keeps its storage. Nodes that have become free are removed.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace heddle::graph {

// The position of a value: in the rows of `storage` (a value that is its own storage), from element
// `column` of each row on. Row stride and size follow from the storage's shape.
struct Placement {
  Value storage;
  int64_t column = 0;
};

struct PlacedGraph {
  Graph graph;
  std::vector<Placement> placements;  // by value id

  // Elements from one row of the value to the next.
  [[nodiscard]] int64_t row_stride(Value value) const;
};

PlacedGraph elide_copies(Graph graph);

}  // namespace heddle::graph
