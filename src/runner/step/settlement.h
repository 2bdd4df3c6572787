// SPDX-License-Identifier: Apache-2.0
// Settlement: where the states, keys and values of a step's drafts that held have to go. A sequence
// goes on from the last node of its path: that node's state becomes the working one, those of
// snapshots on the way are kept, and rows of a tree move to where a chain would have them.
//
// Threading: confined. Cost: O(drafts that held); allocates nothing once its sizes have been seen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/pool_lists.h"
#include "request/batch_plan.h"
#include "runner/step/step_sequence.h"

namespace heddle::runner {

class Settlement {
 public:
  Settlement(int32_t page_size, bool has_window_pages)
      : page_size_(page_size), has_window_pages_(has_window_pages) {}

  void begin();

  // The next sequence that drew: `path` as in StepSequence.
  void add(const request::BatchPlan& plan, const StepSequence& sequence,
           std::span<const int32_t> path);

  // From draft slots to working slots and snapshots.
  [[nodiscard]] std::span<const ops::IdCopy> states() const { return states_; }

  // Rows of keys and values of accepted nodes of trees, by row of the pages.
  [[nodiscard]] std::span<const ops::IdCopy> rows() const { return rows_; }

  [[nodiscard]] std::span<const ops::IdCopy> window_rows() const { return window_rows_; }

 private:
  void add_snapshots(const request::BatchPlan& plan, const StepSequence& sequence,
                     std::span<const int32_t> path);
  void move_rows(const request::PageList& pages, int64_t first, std::span<const int32_t> path,
                 std::vector<ops::IdCopy>& moved) const;

  int32_t page_size_;
  bool has_window_pages_;
  std::vector<ops::IdCopy> states_, rows_, window_rows_;
};

}  // namespace heddle::runner
