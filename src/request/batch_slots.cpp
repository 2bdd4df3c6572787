// SPDX-License-Identifier: Apache-2.0
#include "request/batch_slots.h"

#include <algorithm>

#include <fmt/format.h>

namespace heddle::request {

BatchSlots::BatchSlots(int64_t num_slots, int64_t max_pages_per_sequence)
    : max_pages_(max_pages_per_sequence), slots_(static_cast<size_t>(num_slots)) {
  for (BatchSlot& slot : slots_) {
    slot.start.sequence_id = -1;
    slot.pages[0].ids.reserve(static_cast<size_t>(max_pages_per_sequence));
  }
}

Status BatchSlots::take(const BatchPlan& plan) {
  const auto find = [this](int32_t index) -> Result<BatchSlot*> {
    if (index < 0 || index >= size()) {
      return invalid_argument(fmt::format("batch slot {}; there are {}", index, size()));
    }
    return &slots_[static_cast<size_t>(index)];
  };
  for (const SlotStart& start : plan.starts) {
    HEDDLE_ASSIGN_OR_RETURN(BatchSlot* const slot, find(start.batch_slot));
    slot->start = start;
    const auto ending = plan.ending_tokens(start);
    const auto listed = plan.logprob_tokens(start);
    const auto output = plan.output_tokens(start);
    slot->ending_tokens.assign(ending.begin(), ending.end());
    slot->logprob_tokens.assign(listed.begin(), listed.end());
    slot->output_tokens.assign(output.begin(), output.end());
    if (penalises(start.sampling)) {
      const int64_t most = std::max<int64_t>(start.max_length - start.num_prompt_tokens, 0);
      slot->output_tokens.reserve(static_cast<size_t>(most));
    }
    for (PageList& list : slot->pages) {
      list.first = 0;
      list.ids.clear();
    }
  }
  for (const PageUpdate& update : plan.page_updates) {
    HEDDLE_ASSIGN_OR_RETURN(BatchSlot* const slot, find(update.batch_slot));
    HEDDLE_RETURN_IF_ERROR(take_pages(update, plan.pages_of(update), *slot));
  }
  for (const PlannedSequence& sequence : plan.sequences) {
    const Result<BatchSlot*> slot = find(sequence.batch_slot);
    if (slot.ok() && (*slot)->start.sequence_id == sequence.sequence_id) continue;
    if (!slot.ok()) {
      return slot.status().with_context(fmt::format("sequence {}", sequence.sequence_id));
    }
    return invalid_argument(fmt::format("sequence {}: did not start in batch slot {}",
                                        sequence.sequence_id, sequence.batch_slot));
  }
  return {};
}

Status BatchSlots::take_pages(const PageUpdate& update, std::span<const int32_t> pages,
                              BatchSlot& slot) const {
  if (update.table >= slot.pages.size()) {
    return invalid_argument(fmt::format("batch slot {}: pages of table {} are sent; there are {}",
                                        update.batch_slot, update.table, slot.pages.size()));
  }
  PageList& list = slot.pages[update.table];
  const auto old_end = std::ssize(list.ids);
  const bool begins = old_end == 0 && update.table > 0;
  const int64_t end = update.first + std::ssize(pages);
  if (update.first < list.first || (update.first > old_end && !begins) || end > max_pages_) {
    return invalid_argument(
        fmt::format("batch slot {}: pages {} to {} are sent, it has {} to {}; at most {}",
                    update.batch_slot, update.first, end, list.first, old_end, max_pages_));
  }
  if (begins) list.first = update.first;
  list.ids.resize(static_cast<size_t>(std::max(end, old_end)));
  std::ranges::copy(pages, list.ids.begin() + update.first);
  return {};
}

void BatchSlots::computed(const PlannedSequence& sequence, std::span<const TokenId> new_tokens,
                          TokenId fed) {
  BatchSlot& slot = slots_[static_cast<size_t>(sequence.batch_slot)];
  if (!penalises(slot.start.sampling)) return;
  const int64_t first = slot.start.num_prompt_tokens - sequence.context_tokens;
  const auto skipped = std::clamp<int64_t>(first, 0, std::ssize(new_tokens));
  slot.output_tokens.insert(slot.output_tokens.end(), new_tokens.begin() + skipped,
                            new_tokens.end());
  if (sequence.feeds_drawn_token) slot.output_tokens.push_back(fed);
}

void BatchSlots::accepted(const PlannedSequence& sequence, TokenId draft) {
  BatchSlot& slot = slots_[static_cast<size_t>(sequence.batch_slot)];
  if (penalises(slot.start.sampling)) slot.output_tokens.push_back(draft);
}

}  // namespace heddle::request
