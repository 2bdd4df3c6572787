// SPDX-License-Identifier: Apache-2.0
// remove_dead_code: drops nodes whose results nobody reads. Nodes that write KV pages or recurrent
// state stay, and with them everything they read.
#pragma once

#include "graph/graph.h"

namespace heddle::graph {

Graph remove_dead_code(Graph graph);

}  // namespace heddle::graph
