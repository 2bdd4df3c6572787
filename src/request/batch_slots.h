// SPDX-License-Identifier: Apache-2.0
// BatchSlots: the data that a runner keeps about the sequences in its batch slots. Plans send it
// once (SlotStart, PageUpdate); later steps of a sequence read it here.
//
// Threading: thread-confined. Cost: take() O(data sent by the plan); computed() O(new tokens) for a
// sequence with penalties, else O(1). Allocates only when a sequence starts.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <heddle/request.h>
#include <heddle/status.h>

#include "ops/pool_ids.h"
#include "request/batch_plan.h"

namespace heddle::request {

// Entry i is the page of the tokens from i * page_size on. Entries before `first` were never sent.
struct PageList {
  int64_t first = 0;
  std::vector<int32_t> ids;
};

struct BatchSlot {
  SlotStart start;  // its ranges refer to the plan that sent it; do not use them
  std::vector<TokenId> ending_tokens;
  std::vector<TokenId> logprob_tokens;
  std::vector<TokenId> output_tokens;               // output tokens computed so far, for penalties;
                                                    // empty without penalties
  std::array<PageList, ops::kMaxPageTables> pages;  // the page lists, by page table

  // Tokens that may not be drawn as token `index` of the sequence.
  [[nodiscard]] std::span<const TokenId> forbidden_tokens(int64_t index) const {
    if (index >= start.min_length) return {};
    return ending_tokens;
  }
};

class BatchSlots {
 public:
  // A sequence has at most `max_pages_per_sequence` pages.
  BatchSlots(int64_t num_slots, int64_t max_pages_per_sequence);

  [[nodiscard]] int64_t size() const { return std::ssize(slots_); }

  // `index` must be below size().
  [[nodiscard]] const BatchSlot& operator[](int32_t index) const {
    return slots_[static_cast<size_t>(index)];
  }

  // Stores the starts and page updates of a plan. Called before the plan's first layer. Error:
  // kInvalidArgument for a batch slot or page table that does not exist, for pages that leave a gap
  // in their list or are too many, and for a sequence that never started in its slot.
  Status take(const BatchPlan& plan);

  // Records that a step computes `new_tokens` of the sequence, and with feeds_drawn_token also
  // `fed`.
  void computed(const PlannedSequence& sequence, std::span<const TokenId> new_tokens, TokenId fed);

  // Called after computed(), for each accepted draft of the sequence in order.
  void accepted(const PlannedSequence& sequence, TokenId draft);

 private:
  Status take_pages(const PageUpdate& update, std::span<const int32_t> pages,
                    BatchSlot& slot) const;

  int64_t max_pages_;
  std::vector<BatchSlot> slots_;
};

}  // namespace heddle::request
