// SPDX-License-Identifier: Apache-2.0
// ReplayCheck: whether captured launches may be launched again. They keep the addresses and row
// strides that they took, so that a tensor that has moved since is read where it was. For
// --cuda-graph-debug.
//
// Threading: confined. Cost: a number for each address of each node; for debugging.
#pragma once

#include <string>
#include <vector>

#include "graph/program.h"
#include "ops/forward_context.h"

namespace heddle::runner {

class ReplayCheck {
 public:
  // The executor outlives this.
  explicit ReplayCheck(const graph::Executor& executor) : executor_(&executor) {}

  // Appends what launches of these nodes take of tensors and workspaces.
  void list(const graph::Segment& nodes, std::vector<graph::TakenValue>& taken) const {
    executor_->list_taken(nodes, taken);
  }

  // Appends the arrays of a batch: those of a step that is captured `whole`; of others the one that
  // ops between the splits may read, whose address depends on the number of rows alone.
  void list_batch(const ops::DeviceBatch& batch, bool whole,
                  std::vector<graph::TakenValue>& taken) const;

  // Error: kInternal, naming the first node or array that differs, and both values.
  [[nodiscard]] Status compare(const std::vector<graph::TakenValue>& captured,
                               const std::vector<graph::TakenValue>& now) const;

 private:
  [[nodiscard]] std::string name_of(size_t node) const;

  const graph::Executor* executor_;
};

}  // namespace heddle::runner
