// SPDX-License-Identifier: Apache-2.0
// ReplayCheck: checks that captured launches may be replayed. They contain the addresses and row
// strides of the time of capture, so that a tensor that has moved since would be read at its old
// address. For --cuda-graph-debug.
//
// Threading: confined to one thread. Cost: a number for each address of each node; for debugging
// only.
#pragma once

#include <string>
#include <vector>

#include "graph/program.h"
#include "ops/forward_context.h"

namespace heddle::runner {

class ReplayCheck {
 public:
  // `executor` outlives the object.
  explicit ReplayCheck(const graph::Executor& executor) : executor_(&executor) {}

  // Appends the values that launches of these nodes read from tensors and workspaces.
  void list(const graph::Segment& nodes, std::vector<graph::TakenValue>& taken) const {
    executor_->list_taken(nodes, taken);
  }

  // Appends the addresses of a batch's arrays. For a step captured as a `whole` these are all
  // arrays; for others only the one that ops between the splits may read, whose address depends
  // only on the number of rows.
  void list_batch(const ops::DeviceBatch& batch, bool whole,
                  std::vector<graph::TakenValue>& taken) const;

  // Error: kInternal, with the first node or array that differs and both values.
  [[nodiscard]] Status compare(const std::vector<graph::TakenValue>& captured,
                               const std::vector<graph::TakenValue>& now) const;

 private:
  [[nodiscard]] std::string name_of(size_t node) const;

  const graph::Executor* executor_;
};

}  // namespace heddle::runner
