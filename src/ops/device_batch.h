// SPDX-License-Identifier: Apache-2.0
// DeviceBatchUpload: brings the arrays of a ForwardContext into memory of the device, as one block
// with one launch (bring_batch.h), and points ForwardContext::batch there.
//
// Page tables stay there, and get what differs from the batch before (device_page_table.h). Their
// width is what the longest sequence of the batch needs, rounded up to a power of two of at least
// 16. Where arrays lie depends on the numbers of rows, sequences and wanted logits: batches that
// agree in these have the same addresses.
//
// Threading: confined. Cost: O(rows + pages) host work and one launch that reads the rows and what
// changed; allocates nothing after create().
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
  int64_t max_in_flight = 2;  // batches that the device has not read yet
};

class DeviceBatchUpload {
 public:
  // Error: kResourceExhausted, naming the size.
  static Result<DeviceBatchUpload> create(device::Device& device, const DeviceBatchSizes& sizes);

  // Pages that each sequence of the batch has room for on the device.
  [[nodiscard]] static int64_t width_of(const ForwardContext& forward);

  // Lays out `ids` and `positions`, one number for each row, and the spans of `forward` on the
  // host; sets forward.batch. Waits where max_in_flight are on their way, whose blocks on the
  // host it writes in turn. Error: kInvalidArgument for a batch beyond the sizes.
  Status lay_out(device::Stream& stream, std::span<const int32_t> ids,
                 std::span<const int32_t> positions, ForwardContext& forward);

  // Enqueues the upload of what lay_out() prepared. `feed` changes rows() on the device after it;
  // empty except on a GPU.
  Status bring(Context& context, device::Stream& stream, const FeedDrawnArgs& feed);

  // Both, where no row feeds.
  Status upload(Context& context, device::Stream& stream, std::span<const int32_t> ids,
                std::span<const int32_t> positions, ForwardContext& forward);

  // Arrays of the last lay_out(), in memory of the device: [rows].
  [[nodiscard]] const int32_t* ids() const { return ids_; }

  [[nodiscard]] const int32_t* positions() const { return positions_; }

  // The arrays that bring() may change.
  [[nodiscard]] const DeviceBatchRows& rows() const { return rows_; }

 private:
  DeviceBatchSizes sizes_;

  // On the host.
  struct HostBlock {
    device::Buffer pinned;
    uint32_t number = 0;  // number of the last batch written to this block

    // Changes of page tables are stored after the arrays.
    PageWrite* changes_behind(int64_t num_bytes) {
      return reinterpret_cast<PageWrite*>(pinned.data() + num_bytes);
    }
  };

  // The number of the last batch that the device has read from the current block.
  [[nodiscard]] uint32_t* read_number();

  device::Buffer device_;
  device::Buffer num_blocks_done_;      // memory of the device, see BringBatchArgs
  std::vector<HostBlock> host_blocks_;  // used in turn
  device::Buffer read_numbers_;         // memory of the host, indexed by block
  size_t current_ = 0;
  DevicePageTable page_table_;
  int64_t num_bytes_ = 0;  // bytes of the last batch
  // Changes of page tables of the last batch, which follow its bytes in the block.
  int64_t num_changes_ = 0;
  const int32_t* ids_ = nullptr;
  const int32_t* positions_ = nullptr;
  DeviceBatchRows rows_;
};

}  // namespace heddle::ops
