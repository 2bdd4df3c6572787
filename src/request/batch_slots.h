// SPDX-License-Identifier: Apache-2.0
// BatchSlots: what a runner keeps about the sequences in its batch slots. Plans send it once
// (SlotStart, PageUpdate); every later step of a sequence finds it here.
//
// Threading: thread-confined. Cost: take() O(what the plan sends); computed() O(new tokens) where a
// sequence has penalties, else O(1). Allocates only when a sequence starts.
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

// Entry i is the page of the tokens from i * page_size on. Those before `first` were never sent.
struct PageList {
  int64_t first = 0;
  std::vector<int32_t> ids;
};

struct BatchSlot {
  SlotStart start;  // its ranges refer to an earlier plan
  std::vector<TokenId> ending_tokens;
  std::vector<TokenId> logprob_tokens;
  std::vector<TokenId> output_tokens;               // computed so far, where there are penalties
  std::array<PageList, ops::kMaxPageTables> pages;  // by page table

  // The tokens that the draw of token `index` may not choose.
  [[nodiscard]] std::span<const TokenId> forbidden_tokens(int64_t index) const {
    if (index >= start.min_length) return {};
    return ending_tokens;
  }
};

class BatchSlots {
 public:
  // No sequence has more than `max_pages_per_sequence` pages.
  BatchSlots(int64_t num_slots, int64_t max_pages_per_sequence);

  [[nodiscard]] int64_t size() const { return std::ssize(slots_); }

  // `index` is within size().
  [[nodiscard]] const BatchSlot& operator[](int32_t index) const {
    return slots_[static_cast<size_t>(index)];
  }

  // Takes over what a plan sends before its first layer.
  // Error: kInvalidArgument for a batch slot or page table that does not exist, for pages that
  // leave a gap in their list or are too many, and for a sequence that never started in its slot.
  Status take(const BatchPlan& plan);

  // A step computes the sequence's new tokens; `fed` is the drawn one, where it feeds one.
  void computed(const PlannedSequence& sequence, std::span<const TokenId> new_tokens, TokenId fed);

  // After that, for each draft of the sequence that was accepted, in order.
  void accepted(const PlannedSequence& sequence, TokenId draft);

 private:
  Status take_pages(const PageUpdate& update, std::span<const int32_t> pages,
                    BatchSlot& slot) const;

  int64_t max_pages_;
  std::vector<BatchSlot> slots_;
};

}  // namespace heddle::request
