// SPDX-License-Identifier: Apache-2.0
// Settlement: lists where the states, keys and values of a step's accepted drafts must be copied. A
// sequence continues from the last node of its path: that node's state becomes the working state,
// states of snapshots on the path are kept, and rows of a tree move to the positions they would
// have in a chain.
//
// Threading: confined to one thread. Cost: O(accepted drafts); allocates nothing once its sizes
// have been seen.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ops/pool_lists.h"
#include "request/batch_plan.h"
#include "runner/step/step_sequence.h"

namespace heddle::runner {

class Settlement {
 public:
  Settlement(int32_t page_size, size_t num_page_tables)
      : page_size_(page_size), num_page_tables_(num_page_tables) {}

  void begin();

  // Adds the next sequence that drew; `path` as in StepSequence.
  void add(const request::BatchPlan& plan, const StepSequence& sequence,
           std::span<const int32_t> path);

  // Copies of states from draft slots to working slots and snapshot slots.
  [[nodiscard]] std::span<const ops::IdCopy> states() const { return states_; }

  // Copies of the KV rows of accepted tree nodes, by page table; a row index is page * page_size +
  // offset.
  [[nodiscard]] const ops::CopiesByTable& rows() const { return rows_; }

 private:
  void add_snapshots(const request::BatchPlan& plan, const StepSequence& sequence,
                     std::span<const int32_t> path);
  void move_rows(const request::PageList& pages, int64_t first, std::span<const int32_t> path,
                 std::vector<ops::IdCopy>& moved) const;

  int32_t page_size_;
  size_t num_page_tables_;
  std::vector<ops::IdCopy> states_;
  ops::CopiesByTable rows_;
};

}  // namespace heddle::runner
