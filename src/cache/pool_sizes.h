// SPDX-License-Identifier: Apache-2.0
// PoolSizes: how many pages and slots a runner has, how large each is, and how much work it is to
// fill them. The sizing of the pools (pool_sizing.h) makes one value for both the runner that owns
// the memory and the scheduler that hands out the ids.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "request/prefill_flops.h"

namespace heddle::cache {

// A page table with a window, for the sliding layers of a model that also has full attention. Its
// layers read at most the last `window` tokens.
struct PageWindow {
  int64_t num_pages = 0;   // ids 1 to num_pages; each page holds PoolSizes::page_size tokens
  int64_t page_bytes = 0;  // bytes of a page over the layers of this table
  int64_t window = 0;      // the layers of this table read only so many last tokens

  // Index of the first page that the token at `position` and later tokens read.
  [[nodiscard]] int64_t first_page(int64_t position, int64_t page_size) const {
    return std::max<int64_t>(position + 1 - window, 0) / page_size;
  }

  // Pages that a sequence needs to advance by a token at a time with two steps in flight, or by a
  // page with none, wherever its window begins in a page. They include the pages that the token
  // after the last whole page sees, so that other sequences can resume there.
  [[nodiscard]] int64_t per_sequence(int64_t page_size) const {
    return (window + 2 + page_size - 1) / page_size + 3;
  }
};

struct PoolSizes {
  // Ids run from 1 to the number of pages or slots; id 0 of each pool belongs to no sequence.
  int64_t num_pages = 0;
  int32_t page_size = 16;       // tokens per page, in all tables
  int64_t num_state_slots = 0;  // number of state slots; 0 for models without recurrent state
  // Slots for snapshots alone, in their own format. 0: snapshots use state slots, and
  // MoveKind::kSave is not supported.
  int64_t num_snapshot_slots = 0;

  int32_t max_sequences = 0;  // most running sequences, each with a batch slot

  // Bytes of one page or slot over all layers, including data stored with it.
  int64_t page_bytes = 0;
  int64_t state_slot_bytes = 0;
  int64_t snapshot_slot_bytes = 0;

  // Bytes that all pools share: then there are more ids than fit at once (memory_budget.h). 0: all
  // ids fit at once.
  int64_t shared_bytes = 0;

  int64_t kv_window = 0;  // no layer reads more than this many last tokens; 0: some layer reads all
                          // tokens

  // Page tables 1 and up, the narrowest window first. Empty: all layers use page table 0, which
  // num_pages and page_bytes describe.
  std::vector<PageWindow> windows;

  request::PrefillFlops flops;  // cost of computing tokens of the model

  bool keeps_hidden = false;  // the runner supports PlannedSnapshot::keep_hidden and
                              // PlannedSequence::hidden_slot

  [[nodiscard]] bool has_states() const { return num_state_slots > 0; }

  // Number of page tables, table 0 included.
  [[nodiscard]] size_t num_page_tables() const { return 1 + windows.size(); }

  // The page table for layers that read the last `window` tokens (0: all tokens): the one with the
  // narrowest window that is wide enough.
  [[nodiscard]] uint32_t table_for(int64_t window) const {
    const auto found = std::ranges::lower_bound(windows, window, {}, &PageWindow::window);
    if (window == 0 || found == windows.end()) return 0;
    return static_cast<uint32_t>(1 + (found - windows.begin()));
  }

  [[nodiscard]] bool has_own_snapshot_slots() const { return num_snapshot_slots > 0; }

  // Largest id of PlannedSnapshot::slot and PlannedSequence::hidden_slot.
  [[nodiscard]] int64_t max_snapshot_slot() const {
    return has_own_snapshot_slots() ? num_snapshot_slots : num_state_slots;
  }

  // Bytes of a slot that holds a snapshot.
  [[nodiscard]] int64_t snapshot_bytes() const {
    return has_own_snapshot_slots() ? snapshot_slot_bytes : state_slot_bytes;
  }

  // Bytes of the mapped memory of each pool, id 0 included.
  [[nodiscard]] int64_t kv_pool_bytes() const { return (num_pages + 1) * page_bytes; }

  // Bytes of the pages of all tables with a window.
  [[nodiscard]] int64_t window_pool_bytes() const {
    int64_t bytes = 0;
    for (const PageWindow& window : windows) bytes += (window.num_pages + 1) * window.page_bytes;
    return bytes;
  }

  [[nodiscard]] int64_t state_pool_bytes() const {
    return (num_state_slots + 1) * state_slot_bytes;
  }

  [[nodiscard]] int64_t snapshot_pool_bytes() const {
    return has_own_snapshot_slots() ? (num_snapshot_slots + 1) * snapshot_slot_bytes : 0;
  }

  // Tokens that all pages of table 0 hold.
  [[nodiscard]] int64_t kv_tokens() const { return num_pages * page_size; }

  // Pages of all tables with a window.
  [[nodiscard]] int64_t num_pages_of_windows() const {
    int64_t pages = 0;
    for (const PageWindow& window : windows) pages += window.num_pages;
    return pages;
  }

  [[nodiscard]] int64_t window_tokens() const { return num_pages_of_windows() * page_size; }
};

}  // namespace heddle::cache
