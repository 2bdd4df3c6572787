// SPDX-License-Identifier: Apache-2.0
// DeviceBatchUpload: copies the arrays of a ForwardContext into device memory, as one block in one
// launch (bring_batch.h), and points ForwardContext::batch to them.
//
// Page tables stay in device memory; only entries that changed since the previous batch are
// uploaded (device_page_table.h). Their width is the number of pages that the longest sequence of
// the batch needs, rounded up to a power of two of at least 16. The addresses of the arrays depend
// only on the numbers of rows, sequences and wanted logits: batches with equal numbers have equal
// addresses.
//
// Threading: confined. Cost: O(rows + pages) host work and one launch that reads the rows and the
// changed entries; allocates nothing after create().
#pragma once

#include <cstdint>
#include <vector>

#include "device/device.h"
#include "ops/bring_batch.h"
#include "ops/device_page_table.h"
#include "ops/forward_context.h"

namespace heddle::ops {

struct DeviceBatchSizes {
  int64_t max_rows = 0;
  int64_t max_sequences = 0;
  int64_t max_pages_per_sequence = 0;
  size_t num_page_tables = 1;
  int64_t max_snapshots = 0;
  int64_t max_logit_rows = 0;
  int64_t max_in_flight = 2;  // most batches that are enqueued and not yet read by the device
};

class DeviceBatchUpload {
 public:
  // Error: kResourceExhausted, naming the size that could not be allocated.
  static Result<DeviceBatchUpload> create(device::Device& device, const DeviceBatchSizes& sizes);

  // Width of the batch's page tables in device memory: entries for each sequence.
  [[nodiscard]] static int64_t width_of(const ForwardContext& forward);

  // Writes `ids` and `positions`, which have one number for each row, and the spans of `forward` to
  // a pinned block of host memory and sets forward.batch. The max_in_flight blocks are used in
  // turn: waits while the device has not read the block that is next. Error: kInvalidArgument if
  // the batch exceeds the sizes.
  Status lay_out(device::Stream& stream, std::span<const int32_t> ids,
                 std::span<const int32_t> positions, ForwardContext& forward);

  // Enqueues the upload of what lay_out() prepared. After the copy, the device changes rows() as
  // `feed` says; `feed` is empty except on a GPU.
  Status bring(Context& context, device::Stream& stream, const FeedDrawnArgs& feed);

  // lay_out(), then bring() without fed rows.
  Status upload(Context& context, device::Stream& stream, std::span<const int32_t> ids,
                std::span<const int32_t> positions, ForwardContext& forward);

  // Ids and positions of the last lay_out() in device memory: [rows].
  [[nodiscard]] const int32_t* ids() const { return ids_; }

  [[nodiscard]] const int32_t* positions() const { return positions_; }

  // The arrays in device memory that the feed of bring() may change.
  [[nodiscard]] const DeviceBatchRows& rows() const { return rows_; }

 private:
  DeviceBatchSizes sizes_;

  // Pinned host memory that one batch is written to.
  struct HostBlock {
    device::Buffer pinned;
    uint32_t number = 0;  // number of the last batch written to this block

    // The changed page table entries of a batch, which are stored after its `num_bytes` of arrays.
    PageWrite* changes_behind(int64_t num_bytes) {
      return reinterpret_cast<PageWrite*>(pinned.data() + num_bytes);
    }
  };

  // Where the device writes the number of the last batch that it has read from the current block.
  [[nodiscard]] uint32_t* read_number();

  device::Buffer device_;
  device::Buffer num_blocks_done_;      // counter in device memory, see BringBatchArgs
  std::vector<HostBlock> host_blocks_;  // pinned memory of the batches, used in turn
  // host memory: for each block, the number of the last batch read from it
  device::Buffer read_numbers_;
  size_t current_ = 0;
  DevicePageTable page_table_;
  int64_t num_bytes_ = 0;  // bytes of the last batch, without page table changes
  // Number of changed page table entries of the last batch, stored after its num_bytes_.
  int64_t num_changes_ = 0;
  const int32_t* ids_ = nullptr;
  const int32_t* positions_ = nullptr;
  DeviceBatchRows rows_;
};

}  // namespace heddle::ops
