// SPDX-License-Identifier: Apache-2.0
#include "runner/drafting/written_rows.h"

#include <algorithm>

#include "core/check.h"

namespace heddle::runner {

WrittenRows::WrittenRows(int64_t num_pages, int32_t page_size, int64_t num_slots)
    : page_size_(page_size),
      rows_(static_cast<size_t>(num_pages + 1), 0),
      begun_tokens_(static_cast<size_t>(num_slots), 0) {}

void WrittenRows::take(const request::BatchPlan& plan) {
  using request::MoveKind;
  for (const request::Move& move : plan.moves) {
    if (move.table != 0) continue;
    if (move.kind == MoveKind::kReleasePage) rows_of(move.from) = 0;
    if (move.kind == MoveKind::kCopyPage) rows_of(move.to) = rows_of(move.from);
  }
  const auto begun = [this](int32_t slot) -> int64_t& {
    return begun_tokens_[static_cast<size_t>(slot)];
  };
  for (const request::SlotStart& start : plan.starts) {
    const auto planned =
        std::ranges::find(plan.sequences, start.batch_slot, &request::PlannedSequence::batch_slot);
    if (planned == plan.sequences.end()) continue;
    begun(start.batch_slot) = std::max(planned->context_tokens, planned->kv_tokens);
  }
  for (const request::PageUpdate& update : plan.page_updates) {
    if (update.table != 0) continue;
    int64_t left = begun(update.batch_slot) - int64_t{update.first} * page_size_;
    for (const int32_t page : plan.pages_of(update)) {
      const auto held = static_cast<int32_t>(std::clamp<int64_t>(left, 0, page_size_));
      rows_of(page) = std::min(rows_of(page), held);
      left -= page_size_;
    }
  }
  for (const request::SlotStart& start : plan.starts) begun(start.batch_slot) = 0;
}

int64_t WrittenRows::count(std::span<const int32_t> pages, int64_t from) const {
  int64_t tokens = from;
  for (auto index = static_cast<size_t>(from / page_size_); index < pages.size(); ++index) {
    const int64_t first = static_cast<int64_t>(index) * page_size_;
    const int64_t rows = rows_[static_cast<size_t>(pages[index])];
    tokens = std::max(tokens, first + rows);
    if (rows < page_size_) break;
  }
  return tokens;
}

int64_t WrittenRows::unwritten_end(std::span<const int32_t> pages, int64_t counted,
                                   int64_t end) const {
  for (int64_t index = counted / page_size_ + 1; index * page_size_ < end; ++index) {
    const int32_t page = pages[static_cast<size_t>(index)];
    if (rows_[static_cast<size_t>(page)] > 0) return index * page_size_;
  }
  return end;
}

void WrittenRows::add(std::span<const int32_t> pages, int64_t begin, int64_t end) {
  for (int64_t index = begin / page_size_; index * page_size_ < end; ++index) {
    HEDDLE_DCHECK(index < std::ssize(pages));
    int32_t& rows = rows_of(pages[static_cast<size_t>(index)]);
    const int64_t added = std::min<int64_t>(end - index * page_size_, page_size_);
    rows = std::max(rows, static_cast<int32_t>(added));
  }
}

}  // namespace heddle::runner
