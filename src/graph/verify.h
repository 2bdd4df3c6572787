// SPDX-License-Identifier: Apache-2.0
// verify: a graph is well formed: every node has the inputs its op takes and the shapes its op
// infers, values are defined once and before they are read, and a version that was overwritten in
// place is not read again. Run before and after every other pass.
#pragma once

#include "graph/graph.h"

namespace heddle::graph {

Status verify(const Graph& graph);

}  // namespace heddle::graph
