// SPDX-License-Identifier: Apache-2.0
// DevicePageTable: the page tables of a batch in device memory, one row for each sequence. Only the
// entries that differ from the previous batch are uploaded: a sequence that decodes gets a new page
// once in page_size steps, while its table may have thousands of entries.
//
// Threading: confined. Cost: list_changes() compares all pages of the batch with the host's record
// of what the device has; allocates nothing after create(). When a sequence leaves a batch, the
// sequences after it move up a row, and their pages are uploaded again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "device/device.h"
#include "ops/forward_context.h"

namespace heddle::ops {

// Writes `page` to a table entry. `place` is the index of the entry, counted over all tables.
struct PageWrite {
  int32_t place = 0;
  int32_t page = 0;
};

class DevicePageTable {
 public:
  // For batches of at most `max_sequences` sequences with at most `width` pages in each of the
  // first `num_tables` tables. All entries start as 0. Error: kResourceExhausted.
  static Result<DevicePageTable> create(device::Device& device, int64_t max_sequences,
                                        int64_t width, size_t num_tables);

  // Number of entries in all tables: the most changes that one batch can have.
  [[nodiscard]] int64_t num_entries() const { return std::ssize(known_); }

  // Writes to `changes` the entries that differ from what the device has, and returns their number.
  // `changes` has room for num_entries(), and the batch fits into the table. Padding sequences get
  // page 0. Entries after a sequence's last page are not updated.
  int64_t list_changes(const ForwardContext& forward, std::span<PageWrite> changes);

  // Says that the last listed changes were enqueued for upload. Without this call the next
  // list_changes() lists all entries.
  void sent() { is_known_ = true; }

  // The tables in device memory; consecutive rows are row_stride() entries apart.
  [[nodiscard]] int32_t* entries() const {
    return reinterpret_cast<int32_t*>(const_cast<std::byte*>(entries_.data()));
  }

  // Rows of one table in device memory, in the layout of DeviceBatch::page_tables.
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
  std::vector<int32_t> known_;  // host copy of the entries that the device has
  bool is_known_ = true;
};

}  // namespace heddle::ops
