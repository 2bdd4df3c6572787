// SPDX-License-Identifier: Apache-2.0
// dump: a compiled program as text, in a stable order: one node a line with shapes, live ranges,
// arena offsets, and a rule where a segment ends. `heddle inspect --graph` prints it.
//
// What lies in the rows of another value is shown by that value's columns: "%8[0:1024]".
#pragma once

#include <string>

#include "graph/program.h"

namespace heddle::graph {

std::string dump(const Program& program);

}  // namespace heddle::graph
