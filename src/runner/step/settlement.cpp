// SPDX-License-Identifier: Apache-2.0
#include "runner/step/settlement.h"

namespace heddle::runner {

void Settlement::begin() {
  states_.clear();
  for (std::vector<ops::IdCopy>& rows : rows_) rows.clear();
}

void Settlement::add(const request::BatchPlan& plan, const StepSequence& sequence,
                     std::span<const int32_t> path) {
  if (sequence.draft_slot != 0) {
    states_.push_back(
        {.from = sequence.state_after(path.back()), .to = sequence.planned->state_slot});
  }
  if (!sequence.has_tree) return;
  if (sequence.draft_slot != 0) add_snapshots(plan, sequence, path);
  const int64_t first = sequence.draw_position() - 1;  // position of the token that all drafts
                                                       // follow
  for (size_t table = 0; table < num_page_tables_; ++table) {
    move_rows(sequence.slot->pages[table], first, path, rows_[table]);
  }
}

// Adds the snapshots taken after drafts of a tree: only now are their nodes known.
void Settlement::add_snapshots(const request::BatchPlan& plan, const StepSequence& sequence,
                               std::span<const int32_t> path) {
  for (const request::PlannedSnapshot& snapshot : plan.snapshots_of(*sequence.planned)) {
    const int64_t depth = snapshot.tokens - sequence.draw_position();
    if (depth < 1 || depth >= std::ssize(path)) continue;
    const int32_t node = path[static_cast<size_t>(depth)];
    states_.push_back({.from = sequence.state_after(node), .to = snapshot.slot});
  }
}

void Settlement::move_rows(const request::PageList& pages, int64_t first,
                           std::span<const int32_t> path, std::vector<ops::IdCopy>& moved) const {
  const auto row_at = [&](int64_t place) {
    const auto page = static_cast<size_t>(place / page_size_);
    return static_cast<int32_t>(pages.ids[page] * int64_t{page_size_} + place % page_size_);
  };
  for (int64_t depth = 1; depth < std::ssize(path); ++depth) {
    const int64_t node = path[static_cast<size_t>(depth)];
    if (node == depth) continue;
    moved.push_back({.from = row_at(first + node), .to = row_at(first + depth)});
  }
}

}  // namespace heddle::runner
