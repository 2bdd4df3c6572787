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
  std::vector<Placement> placements;  // indexed by value id
  std::vector<int64_t> row_strides;   // elements, by value id: of storages

  // Elements from one row of the value to the next. Rows of a storage are padded to whole 16 bytes,
  // so that kernels may read and write them by wide vectors; not where a reader of the storage
  // needs dense rows.
  [[nodiscard]] int64_t row_stride(Value value) const {
    return row_strides[placements[value.id].storage.id];
  }

  // The bytes of a storage, padding included.
  [[nodiscard]] int64_t storage_bytes(Value storage, const ops::Extents& extents) const;
};

PlacedGraph elide_copies(Graph graph);

}  // namespace heddle::graph
