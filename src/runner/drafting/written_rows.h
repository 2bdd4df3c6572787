// SPDX-License-Identifier: Apache-2.0
// WrittenRows: records which KV rows in the model's pages a standalone draft model has written.
// Pages pass from text to text through the prefix cache, and the draft model reads only a part of
// the texts: it may lag behind, or no drafts are wanted. For each page the number of leading rows
// counts that were written for the text that the page now holds.
//
// Threading: confined to one thread. Cost: take() O(data sent by the plan), count() and add()
// O(pages visited).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "request/batch_plan.h"

namespace heddle::runner {

class WrittenRows {
 public:
  // Pages have ids from 1 to `num_pages`; at most `num_slots` sequences run.
  WrittenRows(int64_t num_pages, int32_t page_size, int64_t num_slots);

  // Applies a plan: pages assigned to a sequence hold no rows of it yet, except for the context
  // with which it begins, whose rows are in the pages already or are copied to them.
  void take(const request::BatchPlan& plan);

  // How many tokens of a text with these `pages` have rows, from the first token on without a gap.
  // The tokens before `from` must have rows.
  [[nodiscard]] int64_t count(std::span<const int32_t> pages, int64_t from = 0) const;

  // The end of the gap after count(): no text has written rows from `counted` up to the returned
  // token, which is at most `end`. Later pages may hold rows of another text with the same
  // continuation.
  [[nodiscard]] int64_t unwritten_end(std::span<const int32_t> pages, int64_t counted,
                                      int64_t end) const;

  // Records that the tokens from `begin` to below `end` now have rows; those before `begin` must
  // have them.
  void add(std::span<const int32_t> pages, int64_t begin, int64_t end);

 private:
  [[nodiscard]] int32_t& rows_of(int32_t page) { return rows_[static_cast<size_t>(page)]; }

  int32_t page_size_;
  std::vector<int32_t> rows_;          // by page: number of leading rows that are written
  std::vector<int64_t> begun_tokens_;  // by batch slot, during take(): tokens with which a starting
                                       // sequence begins
};

}  // namespace heddle::runner
