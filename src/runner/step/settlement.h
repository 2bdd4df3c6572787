// SPDX-License-Identifier: Apache-2.0
// Settlement: where the states, keys and values of a step's drafts that held have to go. A sequence
// goes on from the last node of its path: that node's state becomes the working one, those of
// snapshots on the way are kept, and rows of a tree move to where a chain would have them.
//
// Threading: confined. Cost: O(drafts that held); allocates nothing once its sizes have been seen.
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

  // The next sequence that drew: `path` as in StepSequence.
  void add(const request::BatchPlan& plan, const StepSequence& sequence,
           std::span<const int32_t> path);

  // From draft slots to working slots and snapshots.
  [[nodiscard]] std::span<const ops::IdCopy> states() const { return states_; }

  // Rows of keys and values of accepted nodes of trees, by row of the pages of each table.
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
