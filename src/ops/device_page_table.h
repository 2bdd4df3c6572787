// SPDX-License-Identifier: Apache-2.0
// DevicePageTable: the page tables of a batch in memory of the device, a row for each sequence.
// They follow those of the host by what differs from the batch before: a sequence that decodes has
// a new page once in page_size steps, and its table may have thousands of entries.
//
// Threading: confined. Cost: list_changes() compares all pages of the batch with those that the
// device has; allocates nothing after create(). Where a sequence leaves a batch, those behind it
// move up a row, and their pages are sent again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "ops/forward_context.h"

namespace heddle::ops {

// Writes `page` to an entry of the table. `place` counts from the table's first row.
struct PageWrite {
  int32_t place = 0;
  int32_t page = 0;
};

class DevicePageTable {
 public:
  // For batches of at most `max_sequences`, with at most `width` pages each in each of the first
  // `num_tables` tables. All entries are 0. Error: kResourceExhausted.
  static Result<DevicePageTable> create(device::Device& device, int64_t max_sequences,
                                        int64_t width, size_t num_tables);

  // Entries of all tables; no batch changes more.
  [[nodiscard]] int64_t num_entries() const { return std::ssize(known_); }

  // Lists the changes for the batch's pages in `changes`, which has room for num_entries(); padding
  // has page 0. The batch fits. Returns their number. Entries after a sequence's pages keep an old
  // id.
  int64_t list_changes(const ForwardContext& forward, std::span<PageWrite> changes);

  // The changes listed last are on their way to the device. Without this the next list has all.
  void sent() { is_known_ = true; }

  // The tables in memory of the device; rows are row_stride() apart.
  [[nodiscard]] int32_t* entries() const {
    return reinterpret_cast<int32_t*>(const_cast<std::byte*>(entries_.data()));
  }

  // As DeviceBatch has them.
  [[nodiscard]] const int32_t* rows_of(size_t table) const {
    return entries() + first_entry(table);
  }

  [[nodiscard]] int64_t row_stride() const { return width_; }

 private:
  [[nodiscard]] int64_t first_entry(size_t table) const {
    return static_cast<int64_t>(table) * max_sequences_ * width_;
  }

  int64_t max_sequences_ = 0;
  int64_t width_ = 0;
  device::Buffer entries_;
  std::vector<int32_t> known_;  // entries that the device has
  bool is_known_ = true;
};

}  // namespace heddle::ops
