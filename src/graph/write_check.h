// SPDX-License-Identifier: Apache-2.0
// launch_checked: as Executor::launch(), and checks that every node writes its whole output. For
// --cuda-graph-debug and tests.
//
// Outputs are filled with a pattern before the launch and read back after it: an element that still
// has the pattern was not written. Comparing results does not find an op that skips rows, because
// the arena may contain zeros or the right values of an earlier step.
//
// Not checked are outputs that change an input in place, whose elements may stay unchanged, and
// those that are not floating point. ops::OpDef::coverage says whether an op must write padding
// rows.
#pragma once

#include "device/device.h"
#include "graph/program.h"

namespace heddle::graph {

// `stream` is the CUDA stream on which the ops run. Nodes of a chain that are launched together are
// checked together. Links that only the chain reads need not be written, and padding rows only if
// all ops of the chain write them. Slow: waits for every launch and reads back all outputs. Error:
// that of launch(), or kInternal, naming the node, the row and the column.
Status launch_checked(Executor& executor, device::Stream& stream, ops::Context& context,
                      const ops::ForwardContext& forward, const Segment& nodes);

}  // namespace heddle::graph
