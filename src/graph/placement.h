// SPDX-License-Identifier: Apache-2.0
// elide_copies: decides which values share memory, so that views and concatenations need no copies.
//
// A column range of a value becomes an offset into the value's rows. A concatenation is removed if
// its parts can be written with a row stride: their producers then write into the result. A value
// that is changed in place keeps its storage. Nodes that need no launch any more are removed.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace heddle::graph {

// Where a value is stored: in the rows of `storage` (a value that is its own storage), from element
// `column` of each row on. Row stride and size follow from the storage's shape.
struct Placement {
  Value storage;
  int64_t column = 0;
};

struct PlacedGraph {
  Graph graph;
  std::vector<Placement> placements;  // where each value is stored, indexed by value id
  std::vector<int64_t> row_strides;   // by value id, for storages: elements from one row to the
                                      // next

  // Elements from one row of the value to the next. Rows of a storage are padded to a multiple of
  // 16 bytes, so that kernels can use wide vectors, except if a reader of the storage needs dense
  // rows.
  [[nodiscard]] int64_t row_stride(Value value) const {
    return row_strides[placements[value.id].storage.id];
  }

  // Size of a storage in bytes, padding included.
  [[nodiscard]] int64_t storage_bytes(Value storage, const ops::Extents& extents) const;
};

PlacedGraph elide_copies(Graph graph);

}  // namespace heddle::graph
