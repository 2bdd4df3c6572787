// SPDX-License-Identifier: Apache-2.0
// WrittenRows: which rows of the model's pages a drafter that reads texts for itself has written.
// The pages pass from text to text by way of the prefix cache, and the drafter reads a part of them
// only: it may be behind, or not asked for drafts. Of each page the leading rows count that were
// written for the text which the page now holds.
//
// Threading: confined. Cost: take() O(what the plan sends), count() and add() O(pages walked).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "request/batch_plan.h"

namespace heddle::runner {

class WrittenRows {
 public:
  // Pages have ids from 1 to `num_pages`, and `num_slots` sequences run.
  WrittenRows(int64_t num_pages, int32_t page_size, int64_t num_slots);

  // Follows a plan: pages that go to a sequence hold nothing of it, but for the context that it
  // begins with, which lies in them already or is copied to them.
  void take(const request::BatchPlan& plan);

  // How many tokens of a text that lies in `pages` have rows, from the first one on without a gap;
  // those before `from` do.
  [[nodiscard]] int64_t count(std::span<const int32_t> pages, int64_t from = 0) const;

  // `end` or less: no text has written the rows from count() up to there. Later pages may hold rows
  // of another text with the same continuation.
  [[nodiscard]] int64_t unwritten_end(std::span<const int32_t> pages, int64_t counted,
                                      int64_t end) const;

  // Tokens from `begin` on, before `end`, have rows now; those before `begin` do.
  void add(std::span<const int32_t> pages, int64_t begin, int64_t end);

 private:
  [[nodiscard]] int32_t& rows_of(int32_t page) { return rows_[static_cast<size_t>(page)]; }

  int32_t page_size_;
  std::vector<int32_t> rows_;          // by page
  std::vector<int64_t> begun_tokens_;  // by batch slot: of sequences that start in the plan
};

}  // namespace heddle::runner
