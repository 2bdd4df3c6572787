// SPDX-License-Identifier: Apache-2.0
// launch_checked: Executor::launch() that proves what every node writes, for --cuda-graph-debug and
// tests.
//
// Outputs are filled with a pattern before the launch and read back behind it: an element that
// still has it was not written. An op that leaves rows out gives no wrong result where the arena
// happens to hold zeros or the step before, so that no comparison of results finds it.
//
// Left out are outputs that change an input in place, whose elements may stay as they are, and
// those that are not floating point. ops::OpDef::coverage says whether rows of padding are owed.
#pragma once

#include "device/device.h"
#include "graph/program.h"

namespace heddle::graph {

// `stream` is the one that the ops launch on. Nodes of a chain that are launched together are
// checked together: but for links that no one else reads, which need not be written, and for rows
// of padding only if all its ops write these. Slow: waits for every launch and reads all outputs.
// Error: that of launch(), or kInternal, naming the node, the row and the column.
Status launch_checked(Executor& executor, device::Stream& stream, ops::Context& context,
                      const ops::ForwardContext& forward, const Segment& nodes);

}  // namespace heddle::graph
